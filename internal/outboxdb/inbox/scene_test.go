package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/inbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// consumer is an endpoint with an inbox. It causes a failure at the first arrival of each message,
// so the relay sends the message again: it loses the response after the effect, drops the request
// before the effect, or handles the message twice concurrently, as if a relay was suspended and
// another relay took over.
type consumer struct {
	t  *testing.T
	in *inbox.Inbox
	db *sql.DB

	mu       sync.Mutex
	arrivals map[string]int
}

func (c *consumer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Idempotency-Key")
	switch arrival, trouble := c.arrived(id); {
	case arrival > 1:
		c.handle(w, id)
	case trouble == 0: // the message was handled, but the response is lost
		c.handle(httptest.NewRecorder(), id)
		panic(http.ErrAbortHandler)
	case trouble == 1: // one of two calls has the effect, but the relay gets a failure
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { c.handle(httptest.NewRecorder(), id) })
		}
		group.Wait()
		w.WriteHeader(http.StatusInternalServerError)
	default: // the message was not handled
		panic(http.ErrAbortHandler)
	}
}

// arrived counts an arrival, and at a message's first arrival chooses one of the three failures.
func (c *consumer) arrived(id string) (arrival, trouble int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrivals[id] == 0 {
		trouble = len(c.arrivals) % 3
	}
	c.arrivals[id]++
	return c.arrivals[id], trouble
}

func (c *consumer) handle(w http.ResponseWriter, id string) {
	if _, err := c.in.Do(context.Background(), c.db, id, effect(context.Background(), id)); err != nil {
		c.t.Logf("the message has to be sent again: %v", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// A relay sends each message at least twice, and each message has one effect.
func TestEachMessageHasOneEffectThoughItComesTwice(t *testing.T) {
	const messages = 30
	eachServer(t, func(t *testing.T, db database) {
		store, ids := newOutbox(t, db, messages)
		c := &consumer{t: t, in: newInbox(t, db.dialect, "billing", inbox.Options{}), db: db.OpenAnother(t), arrivals: map[string]int{}}
		endpoint := httptest.NewServer(c)
		t.Cleanup(endpoint.Close)
		relayAll(t, store, endpoint.URL, messages)
		counts := db.effects(t)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range ids {
			if counts[id] != 1 || c.arrivals[id] < 2 {
				t.Errorf("message %s arrived %d times and has %d effects, want several times and one", id, c.arrivals[id], counts[id])
			}
		}
		if len(counts) != messages {
			t.Errorf("%d messages have an effect, want %d", len(counts), messages)
		}
	})
}

// eachServer runs a test on each server, with one of the server's drivers.
func eachServer(t *testing.T, test func(*testing.T, database)) {
	seen := map[string]bool{}
	on(t, slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool {
		server, _, _ := strings.Cut(target.Name, "/")
		defer func() { seen[server] = true }()
		return seen[server]
	}), test)
}

// newOutbox creates an outbox, writes messages, and returns their ids.
func newOutbox(t *testing.T, db database, count int) (store storage.Store, ids []string) {
	t.Helper()
	tables, err := migrations.New(db.DB, db.dialect, migrations.Options{})
	check(t, err)
	_, err = tables.Up(t.Context())
	check(t, err)
	writer, err := outbox.NewWriter(db.dialect, outbox.Options{})
	check(t, err)
	var messages []outbox.Message
	for n := range count {
		ids = append(ids, outbox.NewID())
		messages = append(messages, outbox.Message{ID: ids[n], Topic: "orders", Key: fmt.Sprint("customer-", n%7)})
	}
	tx := db.begin(t)
	check(t, writer.Write(t.Context(), tx, messages...))
	check(t, tx.Commit())
	store, err = sqlstore.Open(t.Context(), db.DB, db.dialect, sqlstore.Options{})
	check(t, err)
	return store, ids
}

// relayAll runs a relay until all messages are delivered.
func relayAll(t *testing.T, store storage.Store, url string, messages int64) {
	t.Helper()
	sink, err := httpsink.New(httpsink.Options{URL: url})
	check(t, err)
	again := relay.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}
	r, err := relay.New(store, relay.Options{
		Sinks:  map[string]relay.SinkOptions{"endpoint": {Sink: sink, Backoff: again, BreakerBackoff: again}},
		Logger: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(ctx) }()
	for {
		status, err := store.(storage.Operator).Status(t.Context())
		check(t, err)
		if status.Counts[storage.StateDone] == messages || ctx.Err() != nil {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Error("not all messages were delivered in time")
	}
	stop()
	check(t, <-stopped)
}
