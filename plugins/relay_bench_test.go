package plugins_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
)

// BenchmarkOverheadInARelay is BenchmarkOverhead with a whole relay: the relay
// delivers a backlog in PostgreSQL alternately to the built-in sink and the
// plug-in.
//
//	go test ./plugins -run '^$' -bench InARelay -benchtime 5x
func BenchmarkOverheadInARelay(b *testing.B) {
	targets := testdb.Targets()
	at := slices.IndexFunc(targets, func(t testdb.Target) bool { return t.Name == "postgres15/pgx" })
	db := targets[at].Open(b)
	m, err := migrations.New(db.DB, dialect.Postgres(), migrations.Options{})
	check(b, err)
	_, err = m.Up(b.Context())
	check(b, err)
	made := map[string]func() sinks.Sink{
		"inside": func() sinks.Sink {
			sink, err := file.New(file.Options{Path: filepath.Join(b.TempDir(), "inside.jsonl")})
			check(b, err)
			return sink
		},
		"plugin": func() sinks.Sink {
			o := options(b, "file")
			o.Logger = slog.New(slog.DiscardHandler)
			o.Config = map[string]string{"path": filepath.Join(b.TempDir(), "plugin.jsonl")}
			return newSink(b, o)
		},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, sink := range made {
			took[name] = append(took[name], drained(b, db, sink()))
		}
	}
	median := func(name string) float64 { slices.Sort(took[name]); return took[name][len(took[name])/2].Seconds() }
	b.ReportMetric(backlog/median("inside"), "inside/s")
	b.ReportMetric(backlog/median("plugin"), "plugin/s")
	b.ReportMetric(median("inside")/median("plugin"), "ratio")
}

const backlog = 100_000

// drained returns how long a relay takes to deliver a backlog of 300-byte messages
// in batches of 500.
func drained(b *testing.B, db testdb.Database, sink sinks.Sink) time.Duration {
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	check(b, err)
	for part := range backlog / 1000 {
		messages := make([]outbox.Message, 1000)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "orders.paid", Key: fmt.Sprint("order-", part*10+i%50), Payload: bytes.Repeat([]byte("0123456789"), 30)}
		}
		check(b, writer.Write(b.Context(), outbox.WithoutTransaction(db.DB), messages...))
	}
	store, err := sqlstore.Open(b.Context(), db.DB, dialect.Postgres(), sqlstore.Options{})
	check(b, err)
	r, err := relay.New(store, relay.Options{
		Drain: true, Poll: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{"file": {Sink: sink, Batch: 500}},
	})
	check(b, err)
	check(b, sink.Open(b.Context())) // don't measure the start of the process
	began := time.Now()
	check(b, r.Run(b.Context()))
	return time.Since(began)
}
