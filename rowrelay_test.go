package rowrelay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFile returns a new SQLite database. The file's name has characters with a special meaning in a URL.
func newFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", rowrelay.SQLiteFile(filepath.Join(t.TempDir(), "shop 100%?#.db")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newApp(t *testing.T, db *sql.DB, options rowrelay.Options) *rowrelay.App {
	t.Helper()
	app, err := rowrelay.New(db, rowrelay.SQLite, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return app
}

func write(t *testing.T, db *sql.DB, app *rowrelay.App, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		if err := app.Write(t.Context(), outbox.WithoutTransaction(db), outbox.Message{Topic: topic}); err != nil {
			t.Fatal(err)
		}
	}
}

// Messages of topics with a handler go to the handler, and all others to the sink. Options.Table is used by the writer, the
// migrations and the store.
func TestHandlersAndSinksShareTheTopics(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	got := make(chan string, 10)
	app := newApp(t, db, rowrelay.Options{
		Table: "messages",
		Relay: relay.Options{Drain: true, Sinks: map[string]relay.SinkOptions{
			"rest": {Sink: inproc.Func(func(_ context.Context, m sinks.Message) error { got <- "rest " + m.Topic; return nil })},
		}},
	})
	if _, err := db.Exec("CREATE TABLE effects (topic TEXT)"); err != nil {
		t.Fatal(err)
	}
	app.Handle("a", func(_ context.Context, m sinks.Message) error { got <- "handler " + m.Topic; return nil })
	app.HandleTx("b", func(ctx context.Context, tx *sql.Tx, m sinks.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (topic) VALUES (?)", m.Topic)
		return err
	})
	write(t, db, app, "a", "b", "c")
	if err := app.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(got)
	all := map[string]bool{}
	for one := range got {
		all[one] = true
	}
	var effects, done int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM effects WHERE topic = 'b'), (SELECT count(*) FROM messages_done WHERE attempts = 1)").Scan(&effects, &done); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || !all["handler a"] || !all["rest c"] || effects != 1 || done != 3 {
		t.Errorf("the handlers and the sink got %v; %d rows were inserted by the transactional handler, and %d messages are done at the first attempt", all, effects, done)
	}
}

// New refuses a Listener of another table, which would wake the relay for messages that it doesn't read.
func TestNewRefusesAListenerOfAnotherTable(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	for _, c := range []struct{ app, listener, want string }{
		{app: "", listener: ""},
		{app: "outbox", listener: ""},
		{app: "", listener: "outbox"},
		{app: "messaging.outbox", listener: "messaging.outbox"},
		{app: "messaging.outbox", listener: "", want: `the table "outbox", but Options.Table is "messaging.outbox"`},
		{app: "", listener: "messaging.outbox", want: `the table "messaging.outbox", but Options.Table is "outbox"`},
		{app: "messaging.outbox", listener: "shop.outbox", want: `the table "shop.outbox", but Options.Table is "messaging.outbox"`},
	} {
		listener, err := relaypgx.NewListener("postgres://relay@localhost/shop", relaypgx.ListenerOptions{Table: c.listener})
		if err != nil {
			t.Fatal(err)
		}
		_, err = rowrelay.New(db, rowrelay.Postgres, rowrelay.Options{Table: c.app, Relay: relay.Options{Listener: listener}})
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Options.Table %q, ListenerOptions.Table %q: %v, want %q", c.app, c.listener, err, c.want)
		}
	}
}

// A route without a sink sets when the messages of a topic with a handler expire. It doesn't change that topics without a
// handler go to the single sink.
func TestMessagesOfHandlersExpire(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	var handled, rest atomic.Int32
	count := func(n *atomic.Int32) inproc.Handler {
		return func(context.Context, sinks.Message) error { n.Add(1); return nil }
	}
	app := newApp(t, db, rowrelay.Options{Relay: relay.Options{
		Drain:  true,
		Sinks:  map[string]relay.SinkOptions{"rest": {Sink: inproc.Func(count(&rest))}},
		Routes: []relay.Route{{Topic: "a", ExpireAfter: time.Hour, OnExpire: relay.DiscardExpired}},
	}})
	app.Handle("a", count(&handled))
	write(t, db, app, "a", "a", "b")
	if _, err := db.Exec("UPDATE outbox SET created_at = '2026-01-31 12:00:00.000' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	if err := app.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if handled.Load() != 1 || rest.Load() != 1 {
		t.Errorf("%d messages were handled and %d went to the sink, want 1 and 1", handled.Load(), rest.Load())
	}
}

// Messages of a topic without a handler or route wait, and a drain returns an error.
func TestTopicsWithoutAHandlerWait(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	app := newApp(t, db, rowrelay.Options{Relay: relay.Options{Drain: true}})
	app.Handle("a", func(context.Context, sinks.Message) error { return nil })
	write(t, db, app, "a", "unknown")
	if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "topics: unknown") {
		t.Errorf("a drain that leaves messages of a topic returned %v", err)
	}
	var waiting string
	if err := db.QueryRow("SELECT group_concat(topic) FROM outbox_messages WHERE state <> 'done'").Scan(&waiting); err != nil || waiting != "unknown" {
		t.Errorf("the waiting topics are %s, %v", waiting, err)
	}
}

// An operator can redirect a message to the handlers' sink although its topic has no handler. The message waits, uncharged,
// and delays no other message.
func TestRowsForHandlersWithoutTheirTopicWait(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	handled, handledTx := make(chan string, 10), make(chan string, 10)
	app := newApp(t, db, rowrelay.Options{})
	app.Handle("a", func(_ context.Context, m sinks.Message) error { handled <- m.Topic; return nil })
	app.HandleTx("b", func(_ context.Context, _ *sql.Tx, m sinks.Message) error { handledTx <- m.Topic; return nil })
	for i := range 7 {
		if _, err := db.Exec("INSERT INTO outbox (topic, message_key, sinks) VALUES ('none', ?, 'handlers'), ('none', ?, 'handlers-tx')", fmt.Sprint("k", i), fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	var waiting int
	for waiting < 14 {
		if err := db.QueryRow("SELECT count(*) FROM outbox_held WHERE state = 'retry' AND attempts = 0 AND last_error LIKE '%no handler for topic%'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	write(t, db, app, "a", "b")
	<-handled
	<-handledTx
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWakeAndHealthy(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	app := newApp(t, db, rowrelay.Options{Relay: relay.Options{Poll: time.Hour}})
	handled := make(chan struct{}, 10)
	app.Handle("a", func(context.Context, sinks.Message) error { handled <- struct{}{}; return nil })
	app.Wake()
	if err := app.Healthy(); err == nil {
		t.Error("Healthy returned nil before Run")
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	write(t, db, app, "a") // written before the relay's first poll
	go func() { ran <- app.Run(ctx) }()
	<-handled
	write(t, db, app, "a")
	app.Wake() // without Wake, the next poll would be in an hour
	<-handled
	if err := app.Healthy(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "called before") {
		t.Errorf("the second Run: %v", err)
	}
}

// Store and Run return and use the same store, so that a program that counts and changes messages needs no second one.
func TestStoreWorksBeforeAndDuringRun(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	app, err := rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Store(t.Context()); !errors.Is(err, storage.ErrNoSchema) || !strings.Contains(err.Error(), "App.Migrate") {
		t.Errorf("Store without tables: %v", err)
	}
	if err := app.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := app.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	called := make(chan struct{}, 2)
	app.Handle("a", func(context.Context, sinks.Message) error {
		called <- struct{}{}
		if calls.Add(1) == 1 {
			return inproc.Permanent(errors.New("not yet"))
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- app.Run(ctx) }()
	write(t, db, app, "a")
	<-called
	for requeued := 0; requeued == 0; {
		if requeued, err = store.Requeue(t.Context(), storage.Filter{Topic: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	<-called
	if again, err := app.Store(t.Context()); err != nil || again != store {
		t.Errorf("Store during Run returned a different store, or the error %v", err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if status, err := store.Status(t.Context()); err != nil || status.Counts[storage.StateDone] != 1 {
		t.Errorf("Status after Run: %+v, %v", status, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, app := range []*rowrelay.App{nil, {}} {
		if store, err := app.Store(ended); err == nil || store != nil {
			t.Errorf("Store of an App that New didn't return: %v, %v", store, err)
		}
	}
}

func TestAStopBeforeTheStartIsClean(t *testing.T) {
	t.Parallel()
	app := newApp(t, newFile(t), rowrelay.Options{})
	app.Handle("a", func(context.Context, sinks.Message) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := app.Run(ctx); err != nil {
		t.Error(err)
	}
}

// Invalid arguments and options cause an error that says what to do, and no panic.
func TestMistakes(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	nothing := func(context.Context, sinks.Message) error { return nil }
	for name, c := range map[string]struct {
		db      *sql.DB
		kind    rowrelay.Database
		options rowrelay.Options
		want    string
	}{
		"no database":           {nil, rowrelay.SQLite, rowrelay.Options{}, "sql.Open"},
		"no kind":               {db, "", rowrelay.Options{}, `dialect "" is not known`},
		"a bad table":           {db, rowrelay.SQLite, rowrelay.Options{Table: "out;box"}, `"out;box"`},
		"the table named twice": {db, rowrelay.SQLite, rowrelay.Options{Store: sqlstore.Options{Table: "a"}}, "Options.Table"},
		"a bad writer":          {db, rowrelay.SQLite, rowrelay.Options{Writer: outbox.Options{Notify: true}}, "sqlite has no notifications"},
		"a bad claim":           {db, rowrelay.SQLite, rowrelay.Options{Relay: relay.Options{Claim: "columns"}}, `"columns"`},
	} {
		if app, err := rowrelay.New(c.db, c.kind, c.options); err == nil || app != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New with %s returned %v, want an error with %q", name, err, c.want)
		}
	}
	two := map[string]relay.SinkOptions{"one": {Sink: inproc.Func(nothing)}, "two": {Sink: inproc.Func(nothing)}}
	for name, c := range map[string]struct {
		options rowrelay.Options
		handle  func(*rowrelay.App)
		want    string
	}{
		"no handler":       {rowrelay.Options{}, func(*rowrelay.App) {}, "call Handle before Run"},
		"no topic":         {rowrelay.Options{}, func(a *rowrelay.App) { a.Handle("", nothing) }, "give one topic and a function"},
		"a nil handler":    {rowrelay.Options{}, func(a *rowrelay.App) { a.Handle("a", nil) }, `handle topic "a"`},
		"a nil tx handler": {rowrelay.Options{}, func(a *rowrelay.App) { a.HandleTx("a", nil) }, `handle topic "a"`},
		"two handlers":     {rowrelay.Options{}, func(a *rowrelay.App) { a.Handle("a", nothing); a.Handle("a", nothing) }, "has a handler already"},
		"sinks, no route":  {rowrelay.Options{Relay: relay.Options{Sinks: two}}, func(a *rowrelay.App) { a.Handle("a", nothing) }, "needs a route"},
		"a bad lease":      {rowrelay.Options{Relay: relay.Options{Lease: 1}}, func(a *rowrelay.App) { a.Handle("a", nothing) }, "lease"},
		"missing tables":   {rowrelay.Options{Table: "nowhere"}, func(a *rowrelay.App) { a.Handle("a", nothing) }, "run rowrelay migrate up, or call App.Migrate first"},
		"the handlers' sink": {rowrelay.Options{Handlers: relay.SinkOptions{Sink: inproc.Func(nothing)}}, func(a *rowrelay.App) { a.Handle("a", nothing) },
			"Options.Handlers.Sink"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newFile(t)
			app, err := rowrelay.New(db, rowrelay.SQLite, c.options)
			if err == nil && name != "missing tables" {
				err = app.Migrate(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			c.handle(app)
			if err := app.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run returned %v, want an error with %q", err, c.want)
			}
		})
	}
	for _, app := range []*rowrelay.App{nil, {}} {
		app.Handle("a", nothing)
		app.HandleTx("a", nil)
		app.Wake()
		for what, err := range map[string]error{"Migrate": app.Migrate(t.Context()), "Write": app.Write(t.Context(), outbox.WithoutTransaction(db), outbox.Message{Topic: "a"}),
			"Run": app.Run(t.Context()), "Healthy": app.Healthy()} {
			if err == nil {
				t.Errorf("%s of an App that New didn't return returned no error", what)
			}
		}
	}
	app := newApp(t, db, rowrelay.Options{})
	if err := app.Write(t.Context(), nil, outbox.Message{}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("Write: %v", err)
	}
}

// If the database is of another kind than the argument, the error names the right value of that argument: a constant of
// package rowrelay for New, a dialect for sqlstore.Open.
func TestAnotherKindOfDatabase(t *testing.T) {
	t.Parallel()
	for _, kind := range []rowrelay.Database{rowrelay.Postgres, rowrelay.MySQL, rowrelay.MariaDB, rowrelay.SQLServer} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := newFile(t)
			app, err := rowrelay.New(db, kind, rowrelay.Options{})
			if err != nil {
				t.Fatal(err)
			}
			app.Handle("a", func(context.Context, sinks.Message) error { return nil })
			d, err := dialect.ByName(string(kind))
			if err != nil {
				t.Fatal(err)
			}
			_, openErr := sqlstore.Open(t.Context(), db, d, sqlstore.Options{})
			for name, c := range map[string]struct {
				err           error
				want, without string
			}{
				"Migrate":       {app.Migrate(t.Context()), "New was given " + string(kind) + ": pass rowrelay.SQLite: ", "dialect."},
				"Drain":         {app.Drain(t.Context()), "New was given " + string(kind) + ": pass rowrelay.SQLite: ", "dialect."},
				"Run":           {app.Run(t.Context()), "New was given " + string(kind) + ": pass rowrelay.SQLite: ", "dialect."},
				"sqlstore.Open": {openErr, "the dialect is " + string(kind) + ": pass dialect.SQLite(): ", "rowrelay."},
			} {
				if c.err == nil || !strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), c.without) {
					t.Errorf("%s returned %v, want %q in it, and not %q", name, c.err, c.want, c.without)
				}
			}
		})
	}
}

func TestAnotherProgramsTableIsRecognised(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE outbox (id text, aggregatetype text, aggregateid text)"); err != nil {
		t.Fatal(err)
	}
	app, err := rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	app.Handle("orders", func(context.Context, sinks.Message) error { return nil })
	for name, err := range map[string]error{"Migrate": app.Migrate(t.Context()), "Run": app.Run(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "its columns look like Debezium's: set Options.Table to another name") {
			t.Errorf("%s = %v", name, err)
		}
	}
}
