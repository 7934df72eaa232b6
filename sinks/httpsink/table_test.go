package httpsink_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// table is an outbox in a database of its own that needs no server.
type table struct {
	testdb.Database
	t      *testing.T
	writer *outbox.Writer
	store  *sqlstore.Store
}

func newTable(t *testing.T) *table {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Name == "sqlite/modernc" {
			db := target.Open(t)
			d, err := dialect.ByName(db.Kind)
			check(t, err)
			schema, err := migrations.New(db.DB, d, migrations.Options{})
			check(t, err)
			_, err = schema.Up(t.Context())
			check(t, err)
			writer, err := outbox.NewWriter(d, outbox.Options{})
			check(t, err)
			store, err := sqlstore.Open(t.Context(), db.DB, d, sqlstore.Options{})
			check(t, err)
			return &table{db, t, writer, store}
		}
	}
	t.Fatal("the target sqlite/modernc is missing")
	return nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write commits messages.
func (d *table) write(messages ...outbox.Message) {
	d.t.Helper()
	tx, err := d.DB.BeginTx(d.t.Context(), nil)
	check(d.t, err)
	check(d.t, d.writer.Write(d.t.Context(), tx, messages...))
	check(d.t, tx.Commit())
}

// relay runs a relay until stop is called or the test ends.
func (d *table) relay(options relay.Options) (stop func()) {
	d.t.Helper()
	options.Logger, options.Poll = slog.New(slog.DiscardHandler), 20*time.Millisecond
	r, err := relay.New(d.store, options)
	check(d.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				d.t.Error(err)
			}
		}
	}
	d.t.Cleanup(stop)
	return stop
}

// counts returns the number of rows in each state.
func (d *table) counts() map[storage.State]int64 {
	d.t.Helper()
	status, err := d.store.Status(d.t.Context())
	check(d.t, err)
	return status.Counts
}

// list returns the rows of a state.
func (d *table) list(state storage.State) []storage.Info {
	d.t.Helper()
	rows, err := d.store.List(d.t.Context(), storage.Filter{State: state, Limit: 1000})
	check(d.t, err)
	return rows
}

// eventually waits until a condition holds.
func (d *table) eventually(what string, condition func() bool) {
	d.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !condition(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			for _, state := range []storage.State{storage.StatePending, storage.StateRetry} {
				for _, row := range d.list(state) {
					d.t.Logf("%s: %s %v, attempts %d, last error %q", state, row.Message.Topic, row.Message.Headers, row.Attempts, row.LastError)
				}
			}
			d.t.Fatalf("waited without success: %s; the rows are %v", what, d.counts())
		}
	}
}
