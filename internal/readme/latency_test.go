package readme

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// BenchmarkLatency measures the time from a message's commit to the sink's answer, at 50
// messages a second:
//
//	go test ./internal/readme -run '^$' -bench Latency -benchtime 1000x
func BenchmarkLatency(b *testing.B) {
	for _, target := range testdb.Targets() {
		switch target.Driver {
		case "pgx":
			b.Run(target.Name+"/wake", func(b *testing.B) { measure(b, target, woken) })
			b.Run(target.Name+"/notify", func(b *testing.B) { measure(b, target, notified) })
			b.Run(target.Name+"/poll", func(b *testing.B) { measure(b, target, polling) })
		case "sqlite":
			b.Run(target.Name+"/wake", func(b *testing.B) { measure(b, target, woken) })
			b.Run(target.Name+"/poll", func(b *testing.B) { measure(b, target, polling) })
		}
	}
}

// way is how a relay is woken.
type way int

const (
	polling way = iota
	woken
	notified
)

const interval = 20 * time.Millisecond

func measure(b *testing.B, target testdb.Target, by way) {
	db := openTable(b, target)
	var times stopwatch
	r, stop := startRelay(b, db, by, times.arrive)
	defer stop()
	writer := newWriter(b, db, by)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for b.Loop() {
		<-tick.C
		id := outbox.NewID()
		writeOne(b, db, writer, id)
		times.commit(id)
		if by == woken {
			r.Wake()
		}
	}
	times.wait(b)
	times.report(b)
}

func newWriter(b *testing.B, db table, by way) *outbox.Writer {
	var options outbox.Options
	if by == notified {
		options = outbox.Options{Notify: true, NotifyInterval: interval / 4}
	}
	writer, err := outbox.NewWriter(db.dialect, options)
	check(b, err)
	return writer
}

func writeOne(b *testing.B, db table, writer *outbox.Writer, id string) {
	tx, err := db.DB.BeginTx(b.Context(), nil)
	check(b, err)
	defer tx.Rollback()
	check(b, writer.Write(b.Context(), tx, outbox.Message{ID: id, Topic: "orders", Key: "order-" + id[30:], Payload: make([]byte, 256)}))
	check(b, tx.Commit())
}

// startRelay starts a relay in this process, on a separate pool of connections.
func startRelay(b *testing.B, db table, by way, arrive func(id string)) (r *relay.Relay, stop func()) {
	store, err := sqlstore.Open(b.Context(), db.OpenAnother(b), db.dialect, sqlstore.Options{})
	check(b, err)
	options := relay.Options{Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{
		"handler": {Sink: inproc.Func(func(_ context.Context, m sinks.Message) error { arrive(m.ID); return nil })},
	}}
	if by == notified {
		options.Listener, err = relaypgx.NewListener(db.URL, relaypgx.ListenerOptions{})
		check(b, err)
	}
	r, err = relay.New(store, options)
	check(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-time.After(2 * time.Second) // by then the relay has leased its lanes and listens
	return r, func() { cancel(); check(b, <-done) }
}

// stopwatch records when each message was committed and when the sink answered.
type stopwatch struct {
	mu                 sync.Mutex
	committed, arrived map[string]time.Time
}

func (s *stopwatch) commit(id string) { s.note(&s.committed, id) }
func (s *stopwatch) arrive(id string) { s.note(&s.arrived, id) }

func (s *stopwatch) note(times *map[string]time.Time, id string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if *times == nil {
		*times = map[string]time.Time{}
	}
	(*times)[id] = now
}

// wait waits until all messages have arrived.
func (s *stopwatch) wait(b *testing.B) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		s.mu.Lock()
		missing := len(s.committed) - len(s.arrived)
		s.mu.Unlock()
		if missing == 0 {
			return
		}
	}
	b.Fatal("some messages didn't arrive within a minute")
}

func (s *stopwatch) report(b *testing.B) {
	var took []time.Duration
	for id, at := range s.committed {
		took = append(took, max(0, s.arrived[id].Sub(at)))
	}
	slices.Sort(took)
	for name, d := range map[string]time.Duration{
		"p50-ms": took[len(took)/2], "p99-ms": took[len(took)*99/100], "max-ms": took[len(took)-1],
	} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
	b.ReportMetric(0, "ns/op") // hides ns/op, which would only show the interval
}
