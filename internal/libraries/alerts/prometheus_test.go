package alerts

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two scrapes, and between two evaluations.
const interval = 15 * time.Second

// history has the scraped series in Prometheus' form.
type history map[string]*promql.Series

func (h history) scrape(t *testing.T, metrics prometheus.Collector) {
	t.Helper()
	registry := prometheus.NewRegistry()
	check(t, registry.Register(metrics))
	families, err := registry.Gather()
	check(t, err)
	now := time.Now().UnixMilli()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			add := func(suffix string, value float64, more ...string) {
				named := append([]string{model.MetricNameLabel, family.GetName() + suffix, "job", "rowrelay"}, more...)
				for _, pair := range m.GetLabel() {
					named = append(named, pair.GetName(), pair.GetValue())
				}
				metric := labels.FromStrings(named...)
				if h[metric.String()] == nil {
					h[metric.String()] = &promql.Series{Metric: metric}
				}
				s := h[metric.String()]
				s.Floats = append(s.Floats, promql.FPoint{T: now, F: value})
			}
			switch histogram := m.GetHistogram(); {
			case histogram != nil:
				for _, bucket := range histogram.GetBucket() {
					add("_bucket", float64(bucket.GetCumulativeCount()), "le", strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64))
				}
				add("_bucket", float64(histogram.GetSampleCount()), "le", "+Inf")
				add("_sum", histogram.GetSampleSum())
				add("_count", float64(histogram.GetSampleCount()))
			case m.GetCounter() != nil:
				add("", m.GetCounter().GetValue())
			case m.GetGauge() != nil:
				add("", m.GetGauge().GetValue())
			}
		}
	}
}

// Querier makes history a storage.Queryable.
func (h history) Querier(mint, maxt int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for _, s := range h {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
				found.all = append(found.all, promql.NewStorageSeries(*s))
			}
		}
		return found
	}}, nil
}

type seriesSet struct {
	all []*promql.StorageSeries
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// firing returns the times at which an alert fired first and last, or zero values if it never fired.
func (h history) firing(t *testing.T, rule rulefmt.Rule, from, to time.Time) (first, last time.Time) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, EnableAtModifier: true})
	defer engine.Close()
	query, err := engine.NewRangeQuery(context.Background(), h, nil, rule.Expr, from, to, interval)
	check(t, err)
	result := query.Exec(context.Background())
	defer query.Close()
	check(t, result.Err)
	matrix, err := result.Matrix()
	check(t, err)
	for _, series := range matrix {
		since := int64(math.MinInt64)
		for i, point := range series.Floats {
			if i == 0 || point.T-series.Floats[i-1].T > interval.Milliseconds() {
				since = point.T
			}
			if point.T-since < time.Duration(rule.For).Milliseconds() {
				continue
			}
			at := time.UnixMilli(point.T)
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
	}
	return first, last
}

// rules returns the alerts. Prometheus' own parser checks them.
func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	parsed, errs := rulefmt.ParseFile("../../../deploy/prometheus/rowrelay.rules.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if parsed == nil {
		t.FailNow()
	}
	for _, group := range parsed.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
