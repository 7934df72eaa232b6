// Package rowrelay is a transactional outbox for a program that both writes
// messages and handles or forwards them: rows of a table of its own SQL database,
// written in the transaction of a business change, and delivered once that has
// committed.
//
//	app, err := rowrelay.New(db, rowrelay.Postgres, rowrelay.Options{})
//	…
//	err = app.Migrate(ctx)                                   // makes the tables; safe to repeat
//	app.Handle("orders.paid", func(ctx context.Context, m sinks.Message) error { … })
//	go app.Run(ctx)                                          // delivers until the context ends
//
//	tx, err := db.BeginTx(ctx, nil)                          // any database/sql driver
//	…
//	err = app.Write(ctx, tx, outbox.Message{Topic: "orders.paid", Key: "order-42", Payload: body})
//	err = tx.Commit()
//	app.Wake()                                               // saves the wait until the next poll
//
// A message is delivered if and only if its transaction commits; in order per Key;
// at least once, and a duplicate bears the same ID. Any number of processes may do
// this on one table, and share the work.
//
// # What else there is
//
// An [App] puts these packages together, each of which can be used alone:
//
//   - outbox writes messages, and is all that a service needs that only writes; it is
//     a module of its own, which requires nothing;
//   - migrations makes the tables;
//   - relay, over relay/sqlstore, delivers; relay/relaypgx makes that cheaper on
//     PostgreSQL, relay/metrics and relay/admin tell how it does;
//   - sinks is what a destination is: Kafka, RabbitMQ, HTTP, a file, one of your own;
//     sinks/inproc has what handlers need: middleware, transactions, errors that say what
//     is to become of a message;
//   - rowrelaytest is a table in memory, for tests.
//
// The command cmd/rowrelay delivers beside the program instead, and is what an
// operator looks into the table with.
package rowrelay

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// Database is a kind of database, by the name that the command's URLs have for it.
type Database string

// The kinds of databases. docs/databases.md says which servers and drivers have been
// tried.
const (
	Postgres  Database = "postgres"
	MySQL     Database = "mysql"
	MariaDB   Database = "mariadb"
	SQLite    Database = "sqlite"
	SQLServer Database = "sqlserver"
	Oracle    Database = "oracle"
)

// Options are those of the parts that an App is made of. The zero value suits a
// program that handles its messages itself.
type Options struct {
	// Table is the outbox table's name, with or without a schema, which has to
	// exist. Defaults to "outbox".
	Table string

	// Writer says how Write writes.
	Writer outbox.Options

	// Store says how the table is read. Its Reader, relaypgx.Reader{}, makes
	// messages cheaper on PostgreSQL through pgx.
	Store sqlstore.Options

	// Relay says how messages are delivered. Its Sinks and Routes are for the
	// topics without a handler; a single sink without a route takes all of them. A
	// Route of a topic with a handler names no Sink, and says when its messages expire.
	Relay relay.Options

	// Concurrency is how many messages are handled at once, at most, by the
	// functions given to Handle, and as many by those given to HandleTx. Messages
	// of one key are handled one after the other in any case. Defaults to 1: then
	// the handlers need no locks.
	Concurrency int

	// Middleware is laid around each handler, of Handle and of HandleTx: a log, a
	// measurement, a trace. The first is the outermost: it sees a message first and
	// its error last.
	Middleware []inproc.Middleware

	// Handlers has the time-out, attempts, waits and limits of messages that are
	// handled. Its Sink is left empty.
	Handlers relay.SinkOptions
}

// The names of the handlers' sinks, in logs and metrics.
const (
	handlersSink   = "handlers"
	txHandlersSink = "handlers-tx"
)

// App writes messages to one table, and relays them. Its methods may be called
// concurrently.
type App struct {
	db      *sql.DB
	dialect dialect.Dialect
	options Options
	writer  *outbox.Writer
	tables  *migrations.Migrations
	relay   atomic.Pointer[relay.Relay] // nil until Run has made it

	mu         sync.Mutex
	ran        bool
	handlers   map[string]inproc.Handler
	txHandlers map[string]inproc.TxHandler
	mistakes   []error // of Handle and HandleTx
}

// New makes an App on a database. It checks the options and doesn't touch the
// database, which it never closes. An error names all that is wrong with the writer,
// the table's name and the kind of database; what is wrong with the relay's options,
// says Run.
//
// A relay uses up to eight connections at a time, of which database/sql by default
// closes all but two whenever they are idle: call db.SetMaxIdleConns(8). An SQLite
// file is opened by the name that [SQLiteFile] makes.
func New(db *sql.DB, kind Database, options Options) (*App, error) {
	if db == nil {
		return nil, errors.New("rowrelay: the database is nil: pass the *sql.DB that sql.Open returned, after checking its error")
	}
	d, err := dialect.ByName(string(kind))
	if err != nil {
		return nil, fmt.Errorf("rowrelay: %w", err)
	}
	if options.Writer.Table != "" || options.Store.Table != "" {
		return nil, errors.New("rowrelay: name the table once, in Options.Table, and leave Writer.Table and Store.Table empty")
	}
	options.Writer.Table, options.Store.Table = options.Table, options.Table
	writer, err := outbox.NewWriter(d, options.Writer)
	if err != nil {
		return nil, fmt.Errorf("rowrelay: %w", err)
	}
	tables, err := migrations.New(db, d, migrations.Options{Table: options.Table, Claim: string(options.Relay.Claim)})
	if err != nil {
		return nil, fmt.Errorf("rowrelay: %w", err)
	}
	return &App{db: db, dialect: d, options: options, writer: writer, tables: tables,
		handlers: map[string]inproc.Handler{}, txHandlers: map[string]inproc.TxHandler{}}, nil
}

// notMade is an error if New didn't make it.
func (a *App) notMade() error {
	if a == nil || a.db == nil {
		return errors.New("rowrelay: the App is nil or empty: use what New returned, after checking its error")
	}
	return nil
}

// Migrate makes the tables, or brings them up to date. It is safe to repeat, and to
// call by several processes at once. Leave it out where the command, or another tool
// with what "rowrelay migrate print" prints, makes the tables.
func (a *App) Migrate(ctx context.Context) error {
	if err := a.notMade(); err != nil {
		return err
	}
	_, err := a.tables.Up(ctx)
	return inWordsOfKinds(err)
}

// Write inserts the messages in the transaction tx, as [outbox.Writer.Write] does:
// they are delivered if and only if it commits. It may be called before Run, or
// without it.
func (a *App) Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error {
	if err := a.notMade(); err != nil {
		return err
	}
	return a.writer.Write(ctx, tx, messages...)
}

// Cancel deletes scheduled messages in the transaction tx, as [outbox.Writer.Cancel] does,
// and returns the ids of those that it has deleted.
func (a *App) Cancel(ctx context.Context, tx outbox.Execer, messageIDs ...string) (cancelled []string, err error) {
	if err := a.notMade(); err != nil {
		return nil, err
	}
	return a.writer.Cancel(ctx, tx, messageIDs...)
}

// Handle lets a function handle the messages of exactly this topic. An error of it is
// another attempt, later; sinks/inproc has errors that say otherwise. The function
// [Handle] decodes the payload. A topic without a handler or a route waits.
//
// Call it before Run, which returns the mistakes: an empty topic, a nil handler, a
// topic that has a handler already. Once Run was called, it is logged as too late.
func (a *App) Handle(topic string, handler inproc.Handler) {
	if a.notMade() == nil { // else Run says so
		handle(a, a.handlers, topic, handler, handler == nil)
	}
}

// HandleTx is Handle for a function whose effect happens exactly once: what it writes
// with its transaction commits together with the mark that the message is delivered.
func (a *App) HandleTx(topic string, handler inproc.TxHandler) {
	if a.notMade() == nil {
		handle(a, a.txHandlers, topic, handler, handler == nil)
	}
}

// Handle is [App.Handle] for a topic whose messages are values of one type: the function
// gets them decoded. A message whose payload doesn't fit is parked.
func Handle[T any](a *App, topic outbox.Topic[T], handler func(ctx context.Context, body T, m sinks.Message) error) {
	a.Handle(string(topic), inproc.JSON(handler))
}

// HandleTx is [App.HandleTx] for a topic whose messages are values of one type.
func HandleTx[T any](a *App, topic outbox.Topic[T], handler func(ctx context.Context, tx *sql.Tx, body T, m sinks.Message) error) {
	a.HandleTx(string(topic), inproc.JSONTx(handler))
}

func handle[H any](a *App, handlers map[string]H, topic string, handler H, missing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ran:
		cmp.Or(a.options.Relay.Logger, slog.Default()).Error("a handler came too late: call Handle before Run", "topic", topic)
	case topic == "" || topic == "*" || missing:
		a.mistakes = append(a.mistakes, fmt.Errorf("handle topic %q: give one topic and a function", topic))
	case a.handlers[topic] != nil || a.txHandlers[topic] != nil:
		a.mistakes = append(a.mistakes, fmt.Errorf("handle topic %q: it has a handler already", topic))
	default:
		handlers[topic] = handler
	}
}

// Run relays until the context ends, and then stops cleanly: it waits for the
// handlers that are at work (for at most Options.Relay.DrainTimeout), and writes
// down what became of their messages. It returns nil after a clean stop; an error if
// it can't start: the tables are missing, or something is wrong with the options or
// a handler. A database or a sink that is gone later is waited for. Run may be called
// once.
func (a *App) Run(ctx context.Context) error {
	r, err := a.newRelay(ctx, false)
	if r == nil {
		return err
	}
	a.relay.Store(r)
	return r.Run(ctx)
}

// Drain delivers what is there now and returns, for tests, and for programs that are
// started now and then. It waits for no message that is scheduled, nor for one that is to be
// tried again; one whose topic nobody takes is an error. It takes no Run, and may be repeated
// where all is handled; the sinks of Options.Relay are closed at its end, and so it may
// be called once where there are any.
func (a *App) Drain(ctx context.Context) error {
	r, err := a.newRelay(ctx, true)
	if r == nil {
		return err
	}
	return r.Run(ctx)
}

// newRelay is nil without an error where it was stopped before it had begun.
func (a *App) newRelay(ctx context.Context, drain bool) (*relay.Relay, error) {
	if err := a.notMade(); err != nil {
		return nil, err
	}
	options, err := a.relayOptions(drain)
	if err != nil {
		return nil, fmt.Errorf("rowrelay: %w", err)
	}
	store, err := sqlstore.Open(ctx, a.db, a.dialect, a.options.Store)
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case errors.Is(err, storage.ErrNoSchema):
		return nil, fmt.Errorf("%w, or call App.Migrate before", err)
	case err != nil:
		return nil, inWordsOfKinds(err)
	}
	return relay.New(store, options)
}

// inWordsOfKinds says of a database that is of another kind than New was given which one to give.
func inWordsOfKinds(err error) error {
	wrong, is := errors.AsType[*dialect.WrongKind](err)
	if !is {
		return err
	}
	err = fmt.Errorf("rowrelay: the database is %s and New was given %s: give rowrelay.%s", wrong.Server, wrong.Given, wrong.Right)
	if wrong.Err != nil {
		err = fmt.Errorf("%w: %w", err, wrong.Err)
	}
	return err
}

// relayOptions adds the handlers to the other sinks, and their topics to the routes.
func (a *App) relayOptions(drain bool) (relay.Options, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ran {
		return relay.Options{}, errors.New("Run was called before, or Drain with sinks of Options.Relay; make a new App")
	}
	a.ran = !drain || len(a.options.Relay.Sinks) > 0
	options, problems := a.options.Relay, slices.Clone(a.mistakes)
	if drain {
		options.Drain, options.Poll = true, time.Millisecond // so that what is there is soon found, and that it is all
	}
	if len(a.handlers)+len(a.txHandlers) == 0 {
		if len(options.Sinks) == 0 {
			problems = append(problems, errors.New("nothing takes the messages: call Handle before Run, or give Options.Relay.Sinks"))
		}
		return options, errors.Join(problems...)
	}
	forHandlers := a.options.Handlers
	if forHandlers.Sink != nil {
		problems = append(problems, errors.New("Options.Handlers.Sink: must be empty, as it is made of what Handle is given"))
	}
	routes := slices.Clone(options.Routes)
	routed := slices.ContainsFunc(routes, func(r relay.Route) bool { return r.Sink != "" || len(r.Sinks) > 0 })
	if !routed && len(options.Sinks) > 1 {
		problems = append(problems, fmt.Errorf("Options.Relay.Routes: with %d sinks each topic that isn't handled needs a route", len(options.Sinks)))
	}
	for name := range options.Sinks {
		if name == handlersSink || name == txHandlersSink {
			problems = append(problems, fmt.Errorf("Options.Relay.Sinks: %q is the name of the handlers' own sink", name))
		}
		if len(options.Sinks) == 1 && !routed {
			routes = append(routes, relay.Route{Topic: "*", Sink: name})
		}
	}
	options.Sinks = maps.Clone(options.Sinks)
	if options.Sinks == nil {
		options.Sinks = map[string]relay.SinkOptions{}
	}
	// A row may name a handlers' sink and have a topic without a handler, as one that an operator has redirected: then a Mux
	// has it wait.
	if len(a.handlers) > 0 {
		mux := &inproc.Mux{}
		for topic, handler := range a.handlers {
			mux.Handle(topic, handler)
		}
		sink := forHandlers
		sink.Sink = inproc.New(inproc.Wrap(mux.Serve, a.options.Middleware...), inproc.Options{Concurrency: a.options.Concurrency})
		options.Sinks[handlersSink] = sink
		routes = appendRoutes(routes, slices.Sorted(maps.Keys(a.handlers)), handlersSink)
	}
	if len(a.txHandlers) > 0 {
		mux := &inproc.Mux{}
		type txOf struct{} // the key of what goes through the middleware in the context
		for topic, handler := range a.txHandlers {
			mux.Handle(topic, func(ctx context.Context, m sinks.Message) error { return handler(ctx, ctx.Value(txOf{}).(*sql.Tx), m) })
		}
		sink := forHandlers
		sink.Workers = max(1, a.options.Concurrency)
		wrapped := inproc.Wrap(mux.Serve, a.options.Middleware...)
		sink.Sink = inproc.Tx(func(ctx context.Context, tx *sql.Tx, m sinks.Message) error {
			return wrapped(context.WithValue(ctx, txOf{}, tx), m)
		})
		options.Sinks[txHandlersSink] = sink
		routes = appendRoutes(routes, slices.Sorted(maps.Keys(a.txHandlers)), txHandlersSink)
	}
	options.Routes = routes
	return options, errors.Join(problems...)
}

func appendRoutes(routes []relay.Route, topics []string, sink string) []relay.Route {
	for _, topic := range topics {
		given := slices.IndexFunc(routes, func(r relay.Route) bool { return r.Topic == topic && r.Sink == "" && len(r.Sinks) == 0 })
		if given < 0 {
			given, routes = len(routes), append(routes, relay.Route{Topic: topic})
		}
		routes[given].Sink = sink
	}
	return routes
}

// Wake makes the relay look for new messages now. Call it after a commit, to save the
// wait until the next poll; it may be left out. It never blocks, and does nothing
// before Run.
func (a *App) Wake() {
	if a.notMade() == nil && a.relay.Load() != nil {
		a.relay.Load().Wake()
	}
}

// Healthy returns nil if the relay runs, its database answers and no handler or sink
// is stuck, or an error that says what is wrong.
func (a *App) Healthy() error {
	if a.notMade() != nil || a.relay.Load() == nil {
		return errors.New("the relay isn't running")
	}
	return a.relay.Load().Healthy()
}

// StandbyReason says why the relay takes no message though it is healthy: others work on the table whose
// handlers, sinks or routes are not its own, and Options.Relay.Join isn't set. Empty if it does.
func (a *App) StandbyReason() string {
	if a.notMade() != nil || a.relay.Load() == nil {
		return ""
	}
	return a.relay.Load().StandbyReason()
}

// SQLiteFile returns the name by which sql.Open opens an SQLite file as an outbox
// needs it, with modernc.org/sqlite ("sqlite") or mattn/go-sqlite3 ("sqlite3"): with a
// write-ahead log, patience of ten seconds, and transactions that begin with BEGIN
// IMMEDIATE, so that none fails because another one writes. The path is taken as it
// is.
func SQLiteFile(path string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) +
		"?_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL"
}
