package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowrelay/rowrelay/relay"
)

// Counter counts what a table holds; relay.Operator is one.
type Counter interface {
	Status(ctx context.Context) (relay.Status, error)
}

// How often, and for how long at most, a table is counted. Counting may be slow on a
// large table, so no scrape waits for it; and a server may go on with what nobody
// waits for any more. So after a count there is a rest of so many times its length.
const (
	countEvery   = 15 * time.Second
	countTimeout = 10 * time.Second
	countRest    = 20
)

// Watch counts a table now and every 15 s until the context ends, less often where
// counting takes long. While it can't be counted, its gauges are gone rather than
// old, and the failures count as those of the stage "status".
func (s *Source) Watch(ctx context.Context, table Counter) {
	for {
		began := time.Now()
		s.count(ctx, table)
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(countEvery-took, countRest*took)):
		}
	}
}

func (s *Source) count(ctx context.Context, table Counter) {
	limited, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	status, err := table.Status(limited)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.Failed("status", err)
		s.forget()
	default:
		s.show(status)
	}
}

func (s *Source) show(status relay.Status) {
	v := s.metrics.tables
	for state, count := range status.Counts {
		v.messages.WithLabelValues(s.name, string(state)).Set(float64(count))
	}
	v.oldest.WithLabelValues(s.name).Set(status.OldestPending.Seconds())
	alive := 0
	for _, info := range status.Relays {
		if info.Alive {
			alive++
		}
	}
	v.relays.WithLabelValues(s.name).Set(float64(alive))
}

func (s *Source) forget() {
	v := s.metrics.tables
	for _, vector := range []*prometheus.GaugeVec{v.messages, v.oldest, v.relays} {
		vector.DeletePartialMatch(prometheus.Labels{"source": s.name})
	}
}
