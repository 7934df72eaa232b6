package alerts

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// given returns the metrics of a working relay with their labels.
func given(t *testing.T) map[string]map[string]bool {
	t.Helper()
	s := &scene{history: history{}}
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		stop := s.start(nil)
		s.goOn(2 * time.Minute)
		stop()
	})
	all := map[string]map[string]bool{}
	for _, series := range s.history {
		series.Metric.Range(func(l labels.Label) {
			name := series.Metric.Get(model.MetricNameLabel)
			if all[name] == nil {
				all[name] = map[string]bool{}
			}
			all[name][l.Name] = true
		})
	}
	if len(all) < 20 {
		t.Fatalf("only %d metrics: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	return all
}

// place is a PromQL expression, with the labels that the text next to the expression
// shows.
type place struct {
	where, query string
	shown        []string
}

var (
	labelInRule   = regexp.MustCompile(`\$labels\.(\w+)`)
	labelInLegend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	metricInText  = regexp.MustCompile("`(rowrelay_[a-z_]+)")
	heading       = regexp.MustCompile(`(?m)^### (\w+)$`)
)

func submatches(pattern *regexp.Regexp, text string) (all []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// dashboard returns the queries of the dashboard's panels.
func dashboard(t *testing.T) (places []place) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	check(t, json.Unmarshal([]byte(read(t, "grafana/rowrelay.json")), &board))
	ids := map[int]bool{}
	for _, panel := range board.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			query := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			places = append(places, place{"panel " + panel.Title, query, submatches(labelInLegend, target.LegendFormat)})
		}
	}
	return places
}

// Each metric and label in a rule, the dashboard and the runbook is exported by a relay.
func TestNamesExist(t *testing.T) {
	t.Parallel()
	metrics, places := given(t), dashboard(t)
	if len(places) < 15 {
		t.Errorf("only %d queries in the dashboard", len(places))
	}
	for _, rule := range rules(t) {
		shown := labelInRule.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1)
		p := place{where: rule.Alert, query: rule.Expr}
		for _, m := range shown {
			p.shown = append(p.shown, m[1])
		}
		places = append(places, p)
	}
	for _, p := range places {
		query, err := parser.NewParser(parser.Options{}).ParseExpr(p.query)
		if err != nil {
			t.Errorf("%s: %v", p.where, err)
			continue
		}
		left := map[string]bool{} // labels that the result may have
		grouped := false
		parser.Inspect(query, func(node parser.Node, _ []parser.Node) error {
			switch node := node.(type) {
			case *parser.VectorSelector:
				known := metrics[node.Name]
				if known == nil {
					t.Errorf("%s: there is no metric %s", p.where, node.Name)
				}
				for _, matcher := range node.LabelMatchers {
					if !known[matcher.Name] {
						t.Errorf("%s: %s has no label %s", p.where, node.Name, matcher.Name)
					}
				}
				if !grouped {
					maps.Copy(left, known)
				}
			case *parser.AggregateExpr:
				for _, label := range node.Grouping {
					left[label] = true
				}
				grouped = true
			}
			return nil
		})
		if grouped { // the metric must have each label that the query groups by
			parser.Inspect(query, func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					for label := range left {
						if !metrics[selector.Name][label] {
							t.Errorf("%s: %s has no label %s to group by", p.where, selector.Name, label)
						}
					}
				}
				return nil
			})
		}
		for _, label := range p.shown {
			if !left[label] {
				t.Errorf("%s: the result has no label %s", p.where, label)
			}
		}
	}
	for _, name := range submatches(metricInText, read(t, "RUNBOOK.md")) {
		if metrics[name] == nil && metrics[name+"_bucket"] == nil {
			t.Errorf("the runbook: there is no metric %s", name)
		}
	}
}

// The runbook has a section for each alert, which the alert links to, and no others.
func TestRunbookHasAllAlerts(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, rule := range rules(t) {
		alerts = append(alerts, rule.Alert)
		if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, "/deploy/RUNBOOK.md#"+strings.ToLower(rule.Alert)) {
			t.Errorf("%s points to %s", rule.Alert, url)
		}
		for _, name := range []string{"summary", "description"} {
			if rule.Annotations[name] == "" {
				t.Errorf("%s has no %s", rule.Alert, name)
			}
		}
		if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
			t.Errorf("%s has the severity %q", rule.Alert, severity)
		}
	}
	headings := submatches(heading, read(t, "RUNBOOK.md"))
	if slices.Sort(alerts); !slices.Equal(slices.Sorted(slices.Values(headings)), alerts) {
		t.Errorf("the runbook has %v, the alerts are %v", headings, alerts)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../../deploy/" + name)
	check(t, err)
	return string(content)
}
