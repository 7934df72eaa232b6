package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// A database in LATIN1 can't store an error text with an arrow or an emoji. The message is parked with
// another text, and the other messages are marked as delivered.
func TestErrorThatLatin1CannotStoreParksOnlyItsMessage(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := inLatin1(t, target)
			d, err := dialect.ByName(testdb.Postgres)
			if err != nil {
				t.Fatal(err)
			}
			migrate(t, db, d, migrations.Options{})
			writer, err := outbox.NewWriter(d, outbox.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				if err := writer.Write(t.Context(), outbox.WithoutTransaction(db), outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i), Payload: []byte{byte(i)}}); err != nil {
					t.Fatal(err)
				}
			}
			store, err := sqlstore.Open(t.Context(), db, d, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			handled := &tally{times: map[string]int{}}
			r, err := relay.New(store, relay.Options{Drain: true, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handled.handle), JudgeAloneAfter: relay.JudgeAtOnce}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			handled.check(t)
			status, err := store.Status(t.Context())
			if err != nil || status.Counts[storage.StateDone] != 196 || status.Counts[storage.StateError] != 4 {
				t.Errorf("the status is %v, %v; want 196 done and 4 parked", status.Counts, err)
			}
			parked, err := store.List(t.Context(), storage.Filter{State: storage.StateError})
			for _, p := range parked {
				if !strings.Contains(p.LastError, "refused to store") {
					t.Errorf("row %d was parked with %q, %v", p.ID, p.LastError, err)
				}
			}
		})
	}
}

// inLatin1 creates a second database on the target's server, in LATIN1.
func inLatin1(t *testing.T, target testdb.Target) *sql.DB {
	t.Helper()
	beside := target.Open(t)
	address, err := url.Parse(beside.DSN)
	if err != nil {
		t.Fatal("the test database's URL is malformed; it is not shown because it has a password")
	}
	name := strings.TrimPrefix(address.Path, "/") + "_latin1"
	if _, err := beside.DB.ExecContext(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := beside.DB.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	address.Path = "/" + name
	query := address.Query()
	query.Set("client_encoding", "UTF8") // otherwise pgx would send UTF-8 that the server reads as LATIN1
	address.RawQuery = query.Encode()
	db, err := sql.Open(target.Driver, address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tally counts how often each message was handled.
type tally struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *tally) handle(_ context.Context, m sinks.Message) error {
	if m.Payload[0]%50 == 25 {
		return inproc.Permanent(fmt.Errorf("order → nowhere %c", '🙁'))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[m.ID]++
	return nil
}

func (c *tally) check(t *testing.T) {
	t.Helper()
	for id, n := range c.times {
		if n != 1 {
			t.Errorf("message %s was handled %d times", id, n)
		}
	}
}
