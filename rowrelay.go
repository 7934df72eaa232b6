// Package rowrelay is a transactional outbox for a program that both writes
// messages and handles or forwards them. A message is a row of a table in the
// program's SQL database. The program writes it in the transaction of a business
// change, and the relay delivers it after that transaction has committed.
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
// A message is delivered if and only if its transaction commits. Messages with the
// same Key are delivered in order. Each message is delivered at least once, and a
// duplicate has the same ID. Any number of processes may relay one table; they share
// the work.
//
// # Packages
//
// An [App] combines these packages, each of which can be used alone:
//
//   - outbox writes messages. A service that only writes needs nothing else. It is a
//     separate module without dependencies.
//   - migrations creates and updates the tables.
//   - relay delivers messages, and reads the table through relay/sqlstore.
//     relay/relaypgx reduces the CPU per message on PostgreSQL. relay/metrics has
//     metrics for the program's Prometheus registry, relay/admin the operator's page
//     (the example of [App.Store] uses both), and relay/tracing OpenTelemetry spans.
//   - sinks defines the interface of a destination. The packages below it are the sinks for
//     Kafka, RabbitMQ, HTTP, files and others. sinks/inproc has middleware, transactions and
//     errors for handlers.
//   - rowrelaytest has a table in memory for tests.
//
// Instead of an App, the command cmd/rowrelay can run the relay, in a separate process.
// Operators use this command to inspect the table and to change messages.
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

// Database is a kind of database. Its value is also the scheme of the URL with which the
// command rowrelay connects to a database of this kind.
type Database string

// The kinds of databases. docs/databases.md lists the servers and drivers that have been
// tested.
const (
	Postgres  Database = "postgres"
	MySQL     Database = "mysql"
	MariaDB   Database = "mariadb"
	SQLite    Database = "sqlite"
	SQLServer Database = "sqlserver"
	Oracle    Database = "oracle"
)

// Options configure an [App]. The zero value suits a program that handles its
// messages itself.
type Options struct {
	// Table is the outbox table's name, with or without a schema. The schema must
	// exist. Defaults to "outbox".
	Table string

	// Writer configures Write and Cancel. Leave the field Table empty.
	Writer outbox.Options

	// Store configures access to the table. If you use PostgreSQL through pgx, set the
	// field Reader to relaypgx.Reader{}, which reduces the CPU time per message. Leave
	// the field Table empty.
	Store sqlstore.Options

	// Relay configures delivery. Its Sinks and Routes apply to the topics without a
	// handler. If there is one sink and no route names a sink, that sink receives the
	// messages of all these topics. To set when messages of a topic with a handler
	// expire, add a Route for this topic and leave the route's Sink empty.
	Relay relay.Options

	// Concurrency limits the number of concurrent calls of the functions given to
	// Handle, for all topics together. The functions given to HandleTx have a separate
	// limit of the same size, and each of their calls uses a database connection.
	// Messages with the same key are always handled one at a time, in order, even if their
	// topics differ. If Concurrency is 1, the functions given to Handle run one after the
	// other, and need no locks among themselves, but a slow one delays the others. The same
	// applies to the functions given to HandleTx. The default is 10 for Handle and 4 for
	// HandleTx. On SQLite, which has one writer at a time, it is 1 for HandleTx.
	Concurrency int

	// Middleware wraps each handler given to Handle or HandleTx, for example to log
	// or to trace. The first is the outermost: it receives a message first and the
	// handler's error last.
	Middleware []inproc.Middleware

	// Handlers configures the timeout, attempts, back-off and limits of messages that
	// have a handler. Leave the field Sink empty. In logs, metrics and controls, the
	// functions given to Handle appear as the sink "handlers", and those given to
	// HandleTx as the sink "handlers-tx".
	Handlers relay.SinkOptions
}

const (
	handlersSink   = "handlers"
	txHandlersSink = "handlers-tx"
)

// Defaults of Options.Concurrency.
const (
	defaultConcurrency   = 10
	defaultTxConcurrency = 4
)

// App writes messages to one table, and relays them. Its methods may be called
// concurrently.
type App struct {
	db      *sql.DB
	dialect dialect.Dialect
	options Options
	writer  *outbox.Writer
	tables  *migrations.Migrations
	relay   atomic.Pointer[relay.Relay] // nil before Run

	opening chan struct{}   // a semaphore that is full while a call uses the field store
	store   *sqlstore.Store // shared by Store and Run; nil until one of them has opened it

	mu         sync.Mutex
	ran        bool
	handlers   map[string]inproc.Handler
	txHandlers map[string]inproc.TxHandler
	mistakes   []error // errors of Handle and HandleTx, which Run returns
}

// New returns an App for a database. New doesn't access the database, and the App never
// closes db. New returns an error if the kind of database, the table's name or the
// writer's options are invalid, or if Options.Relay.Listener has a method Table() string
// that returns another table's name. Run checks the relay's other options.
//
// A relay uses up to eight connections concurrently, and one more for each running function
// given to HandleTx. By default database/sql keeps only two idle connections open, so call
// db.SetMaxIdleConns(8). For SQLite, open the file with the data source name that
// [SQLiteFile] returns.
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
	if listener, ok := options.Relay.Listener.(interface{ Table() string }); ok {
		if of, table := listener.Table(), cmp.Or(options.Table, dialect.DefaultTable); of != "" && of != table {
			return nil, fmt.Errorf("rowrelay: Options.Relay.Listener listens for the table %q, but Options.Table is %q: give both the same name", of, table)
		}
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
	return &App{db: db, dialect: d, options: options, writer: writer, tables: tables, opening: make(chan struct{}, 1),
		handlers: map[string]inproc.Handler{}, txHandlers: map[string]inproc.TxHandler{}}, nil
}

// notMade returns an error for an App that New did not return.
func (a *App) notMade() error {
	if a == nil || a.db == nil {
		return errors.New("rowrelay: the App is nil or empty: use what New returned, after checking its error")
	}
	return nil
}

// Migrate creates the tables or updates them. It is idempotent, and several processes
// may call it concurrently. You don't need Migrate if the command "rowrelay migrate up"
// creates the tables, or if another tool runs the output of "rowrelay migrate print".
func (a *App) Migrate(ctx context.Context) error {
	if err := a.notMade(); err != nil {
		return err
	}
	_, err := a.tables.Up(ctx)
	return advise(err)
}

// Write inserts the messages in the transaction tx, as [outbox.Writer.Write] does.
// They are delivered if and only if tx commits. Write doesn't need a running relay.
func (a *App) Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error {
	if err := a.notMade(); err != nil {
		return err
	}
	return a.writer.Write(ctx, tx, messages...)
}

// Cancel deletes scheduled messages in the transaction tx, as [outbox.Writer.Cancel] does,
// and returns the ids of the deleted messages.
func (a *App) Cancel(ctx context.Context, tx outbox.Execer, messageIDs ...string) (cancelled []string, err error) {
	if err := a.notMade(); err != nil {
		return nil, err
	}
	return a.writer.Cancel(ctx, tx, messageIDs...)
}

// Handle registers the handler of a topic. The handler must be safe for concurrent use
// unless Options.Concurrency is 1. If the handler returns an error, the message is
// retried after a back-off. With [inproc.Permanent], [inproc.Unavailable] and
// [inproc.RetryAfter] the handler chooses another outcome. The function [Handle] also
// decodes the payload. If a topic has neither a handler nor a route, its messages wait.
//
// Call Handle before Run. Run returns an error for an empty topic, a nil handler, and a
// second handler of a topic. A call after Run logs an error and has no other effect.
func (a *App) Handle(topic string, handler inproc.Handler) {
	if a.notMade() == nil { // otherwise Run returns the error
		handle(a, a.handlers, topic, handler, handler == nil)
	}
}

// HandleTx is like Handle for a handler that writes to the same database. The handler's
// transaction also marks the message as delivered, so its writes take effect exactly
// once.
func (a *App) HandleTx(topic string, handler inproc.TxHandler) {
	if a.notMade() == nil {
		handle(a, a.txHandlers, topic, handler, handler == nil)
	}
}

// Handle is [App.Handle] for a topic whose payloads are JSON of type T. It decodes each
// payload for the handler. A message whose payload can't be decoded is parked.
func Handle[T any](a *App, topic outbox.Topic[T], handler func(ctx context.Context, body T, m sinks.Message) error) {
	a.Handle(string(topic), inproc.JSON(handler))
}

// HandleTx is [App.HandleTx] for a topic whose payloads are JSON of type T.
func HandleTx[T any](a *App, topic outbox.Topic[T], handler func(ctx context.Context, tx *sql.Tx, body T, m sinks.Message) error) {
	a.HandleTx(string(topic), inproc.JSONTx(handler))
}

func handle[H any](a *App, handlers map[string]H, topic string, handler H, missing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ran:
		cmp.Or(a.options.Relay.Logger, slog.Default()).Error("handler registered after Run; call Handle before Run", "topic", topic)
	case topic == "" || topic == "*" || missing:
		a.mistakes = append(a.mistakes, fmt.Errorf("handle topic %q: give one topic and a function", topic))
	case a.handlers[topic] != nil || a.txHandlers[topic] != nil:
		a.mistakes = append(a.mistakes, fmt.Errorf("handle topic %q: it has a handler already", topic))
	default:
		handlers[topic] = handler
	}
}

// Run relays messages until the context ends, and then stops cleanly: it waits at most
// Options.Relay.DrainTimeout for running handlers, and writes the outcomes of their
// messages. It returns nil after a clean stop. It returns an error if it can't start,
// for example because a table is missing or an option or handler is invalid. If the
// database or a sink fails later, Run retries until it is available again. Run may be
// called only once.
func (a *App) Run(ctx context.Context) error {
	r, err := a.newRelay(ctx, false, a.openStore)
	if r == nil {
		return err
	}
	a.relay.Store(r)
	return r.Run(ctx)
}

// Drain delivers the messages that are due and returns. Use it instead of Run in tests and
// in programs that run periodically. It doesn't wait for scheduled messages or for messages
// that wait for another attempt. It returns an error if a topic has neither a handler nor a
// route. If Options.Relay.Sinks is empty, Drain may be called repeatedly. Otherwise it may
// be called only once, because it closes these sinks.
func (a *App) Drain(ctx context.Context) error {
	r, err := a.newRelay(ctx, true, a.newStore) // several calls may run concurrently, and each relay needs its own store
	if r == nil {
		return err
	}
	return r.Run(ctx)
}

// Store returns the store of the App's table, to count, list and change messages, for example for metrics or for the
// operator's page. The first call of Store or Run opens it, and Run relays with the same store. Store may be called before,
// during and after Run. It returns an error if the table can't be opened, for example because it is missing.
func (a *App) Store(ctx context.Context) (storage.Operator, error) {
	if err := a.notMade(); err != nil {
		return nil, err
	}
	store, err := a.openStore(ctx)
	if err != nil {
		return nil, err // an interface that holds the nil store would not be nil
	}
	return store, nil
}

// openStore opens the store that Store and Run share, unless an earlier call has opened it.
func (a *App) openStore(ctx context.Context) (*sqlstore.Store, error) {
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("rowrelay: open the table: %w", ctx.Err())
	}
	if a.store != nil {
		return a.store, nil
	}
	store, err := a.newStore(ctx)
	if err == nil {
		a.store = store
	}
	return store, err
}

func (a *App) newStore(ctx context.Context) (*sqlstore.Store, error) {
	store, err := sqlstore.Open(ctx, a.db, a.dialect, a.options.Store)
	if errors.Is(err, storage.ErrNoSchema) {
		return nil, fmt.Errorf("%w, or call App.Migrate first", err)
	}
	return store, advise(err)
}

// newRelay opens the table with the function open and returns a new relay. If the context has ended, it returns no relay
// and no error.
func (a *App) newRelay(ctx context.Context, drain bool, open func(context.Context) (*sqlstore.Store, error)) (*relay.Relay, error) {
	if err := a.notMade(); err != nil {
		return nil, err
	}
	options, err := a.relayOptions(drain)
	if err != nil {
		return nil, fmt.Errorf("rowrelay: %w", err)
	}
	store, err := open(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return relay.New(store, options)
}

// advise adds a hint to the errors that result from a wrong argument of New: the kind of the database, or the table's name.
// It returns other errors unchanged.
func advise(err error) error {
	if errors.As(err, new(*storage.ForeignTable)) {
		return fmt.Errorf("rowrelay: %w: set Options.Table to another name", err)
	}
	wrong, is := errors.AsType[*dialect.WrongKind](err)
	if !is {
		return err
	}
	err = fmt.Errorf("rowrelay: the database is %s, but New was given %s: pass rowrelay.%s", wrong.Server, wrong.Given, wrong.Right)
	if wrong.Err != nil {
		err = fmt.Errorf("%w: %w", err, wrong.Err)
	}
	return err
}

// relayOptions adds sinks for the handlers to the other sinks, and adds the
// handlers' topics to the routes.
func (a *App) relayOptions(drain bool) (relay.Options, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ran {
		return relay.Options{}, errors.New("Run was called before, or Drain was called with Options.Relay.Sinks set; make a new App")
	}
	a.ran = !drain || len(a.options.Relay.Sinks) > 0
	options, problems := a.options.Relay, slices.Clone(a.mistakes)
	if drain {
		options.Drain, options.Poll = true, time.Millisecond // short, because a drain ends only after two consecutive empty polls
	}
	if len(a.handlers)+len(a.txHandlers) == 0 {
		if len(options.Sinks) == 0 {
			problems = append(problems, errors.New("the App has no handler and no sink: call Handle before Run, or set Options.Relay.Sinks"))
		}
		return options, errors.Join(problems...)
	}
	forHandlers := a.options.Handlers
	if forHandlers.Sink != nil {
		problems = append(problems, errors.New("Options.Handlers.Sink: must be empty: New makes this sink from the functions given to Handle"))
	}
	routes := slices.Clone(options.Routes)
	routed := slices.ContainsFunc(routes, func(r relay.Route) bool { return r.Sink != "" || len(r.Sinks) > 0 })
	if !routed && len(options.Sinks) > 1 {
		problems = append(problems, fmt.Errorf("Options.Relay.Routes: with %d sinks, each topic without a handler needs a route", len(options.Sinks)))
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
	// An operator can redirect a message to one of these sinks even if the sink has no handler for the message's topic. The Mux then
	// returns an error that makes the message wait.
	if len(a.handlers) > 0 {
		mux := &inproc.Mux{}
		for topic, handler := range a.handlers {
			mux.Handle(topic, handler)
		}
		sink := forHandlers
		sink.Sink = inproc.New(inproc.Wrap(mux.Serve, a.options.Middleware...), inproc.Options{Concurrency: cmp.Or(a.options.Concurrency, defaultConcurrency)})
		options.Sinks[handlersSink] = sink
		routes = appendRoutes(routes, slices.Sorted(maps.Keys(a.handlers)), handlersSink)
	}
	if len(a.txHandlers) > 0 {
		mux := &inproc.Mux{}
		type txOf struct{} // the key of the transaction in the context that is passed through the middleware
		for topic, handler := range a.txHandlers {
			mux.Handle(topic, func(ctx context.Context, m sinks.Message) error { return handler(ctx, ctx.Value(txOf{}).(*sql.Tx), m) })
		}
		sink := forHandlers
		sink.Workers = max(1, cmp.Or(a.options.Concurrency, defaultTxConcurrency))
		if a.options.Concurrency == 0 && a.dialect.Name() == string(SQLite) {
			sink.Workers = 1
		}
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

// Wake makes the relay read new messages immediately instead of at its next poll. Call it
// after a commit to reduce latency; it is optional. It never blocks, and does nothing before
// Run.
func (a *App) Wake() {
	if a.notMade() == nil && a.relay.Load() != nil {
		a.relay.Load().Wake()
	}
}

// Healthy returns nil if the relay runs, its database answers and no handler or sink
// is stuck. Otherwise it returns an error with the reason. It accesses no database, so
// probes of health and readiness may call it at any rate.
func (a *App) Healthy() error {
	if a.notMade() != nil || a.relay.Load() == nil {
		return errors.New("the relay isn't running")
	}
	return a.relay.Load().Healthy()
}

// StandbyReason returns why a healthy relay delivers no messages: other relays of the table have different
// handlers, sinks or routes, and Options.Relay.Join isn't set. It returns "" if the relay delivers.
func (a *App) StandbyReason() string {
	if a.notMade() != nil || a.relay.Load() == nil {
		return ""
	}
	return a.relay.Load().StandbyReason()
}

// SQLiteFile returns the data source name with which sql.Open opens an SQLite file for
// an outbox. It suits the drivers modernc.org/sqlite ("sqlite") and mattn/go-sqlite3
// ("sqlite3"). It sets a write-ahead log, a busy timeout of ten seconds, and
// transactions that begin with BEGIN IMMEDIATE, so that no transaction fails because
// another one is writing. SQLiteFile escapes special characters in the path.
func SQLiteFile(path string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) +
		"?_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL"
}
