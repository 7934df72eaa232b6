package sqlstore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// A relay by rows needs nothing that these servers lack.
func TestRelayOnKin(t *testing.T) {
	t.Parallel()
	const count = 300
	table := openKin(t, testdb.Targets()[0], dialect.CockroachDB())
	writer, err := outbox.NewWriter(dialect.CockroachDB())
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Write(t.Context(), table.DB, messages(count)...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var seen, delivered atomic.Int64
	handler := inproc.Func(func(_ context.Context, m sinks.Message) error {
		if m.Attempt == 1 && seen.Add(1)%7 == 0 {
			return errors.New("not now")
		}
		if delivered.Add(1) == count {
			stop() // and what is under way is settled
		}
		return nil
	})
	r, err := relay.New(table.open(t), relay.Options{
		Claim: relay.ByRows,
		Sinks: map[string]relay.SinkOptions{"main": {Sink: handler, Backoff: relay.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	status, err := table.open(t).Status(t.Context())
	if err != nil || status.Counts[relay.StateDone] != count {
		t.Errorf("%+v, %v; want all %d done", status.Counts, err, count)
	}
}
