package libraries

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// A mistake that compiles causes an error that names the mistake and the remedy, not a panic or a
// database's syntax error.
func TestMistakesAreNamed(t *testing.T) {
	t.Parallel()
	ctx, m := t.Context(), outbox.Message{Topic: "t"}
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	check(t, err)
	locking, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{KeyLocks: true})
	check(t, err)
	in, err := inbox.New(dialect.Postgres(), "billing", inbox.Options{})
	check(t, err)
	store := memstore.New().Store()
	noDB, err := migrations.New(nil, dialect.Postgres(), migrations.Options{})
	check(t, err)
	once := func(tx outbox.Execer) error { _, err := in.Once(ctx, tx, "id"); return err }
	for name, c := range map[string]struct {
		make func() error
		want string
	}{
		"writer: no transaction":        {func() error { return writer.Write(ctx, nil, m) }, "the transaction is nil"},
		"writer: nil *sql.Tx":           {func() error { return writer.Write(ctx, (*sql.Tx)(nil), m) }, "the transaction is nil (*sql.Tx)"},
		"writer: nil *sqlx.Tx":          {func() error { return writer.Write(ctx, (*sqlx.Tx)(nil), m) }, "the transaction is nil (*sqlx.Tx)"},
		"writer: locks without one":     {func() error { return locking.Write(ctx, new(sql.DB), m) }, "pass the *sql.Tx"},
		"writer: nil dialect":           {func() error { _, err := outbox.NewWriter(nil, outbox.Options{}); return err }, "from package dialect"},
		"pgx: no transaction":           {func() error { return writer.Write(ctx, outbox.Pgx(pgx.Tx(nil)), m) }, "the transaction is nil"},
		"pgx: nil *pgxpool.Tx":          {func() error { return writer.Write(ctx, outbox.Pgx((*pgxpool.Tx)(nil)), m) }, "the transaction is nil"},
		"pgx: nil *pgx.Conn":            {func() error { return writer.Write(ctx, outbox.Pgx((*pgx.Conn)(nil)), m) }, "the transaction is nil"},
		"pgx: nil batch":                {func() error { return writer.Write(ctx, outbox.PgxBatch((*pgx.Batch)(nil)), m) }, "the transaction is nil"},
		"inbox: no transaction":         {func() error { return once(nil) }, "the transaction is nil"},
		"inbox: nil *sql.Tx":            {func() error { return once((*sql.Tx)(nil)) }, "the transaction is nil (*sql.Tx)"},
		"inbox: a pool":                 {func() error { return once(new(sql.DB)) }, "pass the *sql.Tx"},
		"inbox: nil database to Do":     {func() error { _, err := in.Do(ctx, nil, "id", func(*sql.Tx) error { return nil }); return err }, "sql.Open"},
		"inbox: nil effect":             {func() error { _, err := in.Do(ctx, new(sql.DB), "id", nil); return err }, "a function"},
		"inbox: nil database to Clean":  {func() error { _, err := in.Clean(ctx, (*sql.DB)(nil)); return err }, "sql.Open"},
		"inbox: nil dialect":            {func() error { _, err := inbox.New(nil, "billing", inbox.Options{}); return err }, "from package dialect"},
		"store: nil database":           {func() error { _, err := sqlstore.Open(ctx, nil, dialect.Postgres(), sqlstore.Options{}); return err }, "sql.Open"},
		"store: nil dialect":            {func() error { _, err := sqlstore.Open(ctx, new(sql.DB), nil, sqlstore.Options{}); return err }, "from package dialect"},
		"migrations: nil dialect":       {func() error { _, err := migrations.New(nil, nil, migrations.Options{}); return err }, "from package dialect"},
		"migrations: nil database":      {func() error { _, err := noDB.Up(ctx); return err }, "sql.Open"},
		"relay: no store":               {func() error { _, err := relay.New(nil, relay.Options{}); return err }, "sqlstore.Open"},
		"relay: nil *sqlstore.Store":    {func() error { _, err := relay.New((*sqlstore.Store)(nil), relay.Options{}); return err }, "sqlstore.Open"},
		"consumer: nil *sqlstore.Store": {func() error { _, err := relay.NewConsumer((*sqlstore.Store)(nil), relay.ConsumerOptions{}); return err }, "sqlstore.Open"},
		"relay: no sink":                {func() error { return withSink(store, nil) }, "the sink is nil"},
		"relay: nil *inproc.Sink":       {func() error { return withSink(store, (*inproc.Sink)(nil)) }, "the sink is nil (*inproc.Sink)"},
		"relay: nil *stdout.Sink":       {func() error { return withSink(store, (*stdout.Sink)(nil)) }, "the sink is nil"},
		"inproc: nil handler":           {func() error { return withSink(store, inproc.Func(nil)) }, "need a function"},
		"inproc: nil typed handler":     {func() error { return withSink(store, inproc.Func(inproc.JSON[int](nil))) }, "need a function"},
		"inproc: nil wrapped handler":   {func() error { return withSink(store, inproc.Func(inproc.Wrap(nil, nil))) }, "need a function"},
		"inproc: nil batch handler":     {func() error { return withSink(store, inproc.Batch(nil, inproc.BatchOptions{})) }, "need a function"},
		"inproc: nil tx handler":        {func() error { return withSink(store, inproc.Tx(inproc.JSONTx[int](nil))) }, "need a function"},

		"writer: a *sql.DB":       {func() error { return writer.Write(ctx, new(sql.DB), m) }, "a *sql.DB is not a transaction, and its messages would be delivered even if the change is rolled back"},
		"writer: a *sql.Conn":     {func() error { return writer.Write(ctx, new(sql.Conn), m) }, "a *sql.Conn is not a transaction"},
		"writer: a *sqlx.DB":      {func() error { return writer.Write(ctx, new(sqlx.DB), m) }, "a *sqlx.DB is not a transaction"},
		"writer: a *bun.DB":       {func() error { return writer.Write(ctx, new(bun.DB), m) }, "a *bun.DB is not a transaction"},
		"writer: gorm without":    {func() error { return writer.Write(ctx, new(gorm.PreparedStmtDB), m) }, "a *gorm.PreparedStmtDB is not a transaction"},
		"writer: ent's driver":    {func() error { return writer.Write(ctx, new(entsql.Driver), m) }, "a *sql.Driver is not a transaction"},
		"writer: a pgx pool":      {func() error { return writer.Write(ctx, outbox.Pgx(new(pgxpool.Pool)), m) }, "a *pgxpool.Pool is not a transaction"},
		"writer: a *pgx.Conn":     {func() error { return writer.Write(ctx, outbox.Pgx(new(pgx.Conn)), m) }, "outbox.WithoutTransaction"},
		"writer: nil without one": {func() error { return writer.Write(ctx, outbox.WithoutTransaction((*sql.DB)(nil)), m) }, "the transaction is nil"},
		"writer: locks, told":     {func() error { return locking.Write(ctx, outbox.WithoutTransaction(new(sql.DB)), m) }, "pass the *sql.Tx"},
		"writer: cancels, told": {func() error {
			_, err := writer.Cancel(ctx, outbox.WithoutTransaction(new(sql.DB)), outbox.NewID())
			return err
		}, "pass the *sql.Tx"},
		"inbox: a pgx pool": {func() error { return once(outbox.Pgx(new(pgxpool.Pool))) }, "pass the *sql.Tx"},
		"inbox: told":       {func() error { return once(outbox.WithoutTransaction(new(sql.DB))) }, "pass the *sql.Tx"},

		"nil writer":           {func() error { return (*outbox.Writer)(nil).Write(ctx, new(sql.Tx), m) }, "use what NewWriter returned"},
		"empty writer":         {func() error { return new(outbox.Writer).Write(ctx, new(sql.Tx), m) }, "use what NewWriter returned"},
		"empty writer, Cancel": {func() error { _, err := new(outbox.Writer).Cancel(ctx, new(sql.Tx), outbox.NewID()); return err }, "use what NewWriter returned"},
		"nil inbox":            {func() error { _, err := (*inbox.Inbox)(nil).Once(ctx, new(sql.Tx), "id"); return err }, "use what New returned"},
		"empty inbox, Do": {func() error {
			_, err := new(inbox.Inbox).Do(ctx, new(sql.DB), "id", func(*sql.Tx) error { return nil })
			return err
		}, "use what New returned"},
		"empty inbox, Clean":    {func() error { _, err := new(inbox.Inbox).Clean(ctx, new(sql.DB)); return err }, "use what New returned"},
		"nil migrations":        {func() error { _, err := (*migrations.Migrations)(nil).Up(ctx); return err }, "use what New returned"},
		"empty migrations":      {func() error { return new(migrations.Migrations).Print(nil) }, "use what New returned"},
		"migrations: no count":  {func() error { _, err := noDB.Undelivered(ctx); return err }, "sql.Open"},
		"nil relay":             {func() error { return used(nil) }, "use what New returned"},
		"empty relay":           {func() error { return used(new(relay.Relay)) }, "use what New returned"},
		"nil consumer":          {func() error { _, err := (*relay.Consumer)(nil).Receive(ctx, 1); return err }, "use what NewConsumer returned"},
		"empty consumer":        {func() error { new(relay.Consumer).Wake(); _, err := new(relay.Consumer).Receive(ctx, 1); return err }, "use what NewConsumer returned"},
		"empty store":           {func() error { return withStore(ctx, new(sqlstore.Store)) }, "use what sqlstore.Open returned"},
		"empty store, status":   {func() error { _, err := new(sqlstore.Store).Status(ctx); return err }, "use what sqlstore.Open returned"},
		"empty store, consumer": {func() error { return received(ctx, new(sqlstore.Store)) }, "use what sqlstore.Open returned"},
		"nil app":               {func() error { return appUsed(ctx, nil) }, "use what New returned"},
		"empty app":             {func() error { return appUsed(ctx, new(rowrelay.App)) }, "use what New returned"},
		"empty http options":    {func() error { _, err := httpsink.New(httpsink.Options{}); return err }, "url"},
		"empty kafka options":   {func() error { _, err := kafka.New(kafka.Options{}); return err }, "broker"},
		"empty rabbit options":  {func() error { _, err := rabbitmq.New(rabbitmq.Options{}); return err }, "hosts"},
		"empty file options":    {func() error { _, err := file.New(file.Options{}); return err }, "path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// used calls all methods of a Relay.
func used(r *relay.Relay) error {
	r.Wake()
	r.Abort()
	return cmp.Or(r.Run(context.Background()), r.Healthy())
}

// appUsed calls all methods of an App.
func appUsed(ctx context.Context, a *rowrelay.App) error {
	a.Wake()
	a.Handle("a", nil)
	a.HandleTx("a", nil)
	rowrelay.Handle[int](a, "a", nil)
	rowrelay.HandleTx[int](a, "a", nil)
	_, cancelErr := a.Cancel(ctx, nil)
	for _, err := range []error{a.Migrate(ctx), a.Write(ctx, nil), a.Drain(ctx), a.Healthy(), cancelErr} {
		if err == nil {
			return nil
		}
	}
	return a.Run(ctx)
}

func withStore(ctx context.Context, store *sqlstore.Store) error {
	r, err := relay.New(store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: stdout.New(stdout.Options{})}}})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func received(ctx context.Context, store *sqlstore.Store) error {
	c, err := relay.NewConsumer(store, relay.ConsumerOptions{})
	if err != nil {
		return err
	}
	_, err = c.Receive(ctx, 1)
	return err
}

func withSink(store storage.Store, sink sinks.Sink) error {
	_, err := relay.New(store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}})
	return err
}

// Each dialect is used on a database of another kind. The error names the wrong dialect and the
// remedy, unless the database works with that dialect, too.
func TestWrongDialects(t *testing.T) {
	t.Parallel()
	dialects := map[string]dialect.Dialect{testdb.Postgres: dialect.Postgres(), testdb.MariaDB: dialect.MariaDB(), testdb.SQLite: dialect.SQLite()}
	for _, target := range testdb.Targets() {
		if target.Name != "postgres15/pgx" && target.Name != "mariadb1011/gosql" && target.Name != "mysql/gosql" && target.Name != "sqlite/modernc" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			s := open(t, target)
			for kind, d := range dialects {
				if kind == s.Kind || kind == testdb.MariaDB && s.Kind == testdb.MySQL { // MySQL and MariaDB share a dialect that detects the server
					continue
				}
				_, err := sqlstore.Open(t.Context(), s.DB, d, sqlstore.Options{})
				wantNamed(t, "sqlstore.Open with "+kind, err, "the dialect is "+d.Name())
				m, err := migrations.New(s.DB, d, migrations.Options{Table: "other"})
				check(t, err)
				_, err = m.Up(t.Context())
				wantNamed(t, "migrations with "+kind, err, "the dialect is "+d.Name())
				s.wrongWriter(t, d)
				app, err := rowrelay.New(s.DB, rowrelay.Database(kind), rowrelay.Options{Table: "other"})
				check(t, err)
				app.Handle("a", func(context.Context, sinks.Message) error { return nil })
				right := map[string]string{testdb.Postgres: "Postgres", testdb.MariaDB: "MariaDB", testdb.MySQL: "MySQL", testdb.SQLite: "SQLite"}[s.Kind]
				for what, err := range map[string]error{"Migrate": app.Migrate(t.Context()), "Drain": app.Drain(t.Context())} {
					wantNamed(t, what+" of an App with "+kind, err, "pass rowrelay."+right)
				}
			}
		})
	}
}

// wrongWriter requires that the message was written unchanged, or that the error names the dialect.
func (s shop) wrongWriter(t *testing.T, d dialect.Dialect) {
	t.Helper()
	writer, err := outbox.NewWriter(d, outbox.Options{})
	check(t, err)
	err = bySQL(t.Context(), shop{Database: s.Database, dialect: s.dialect, writer: writer}, difficult[:1], func() error { return nil })
	if err != nil {
		wantNamed(t, "writer with "+d.Name(), err, "pass this database's dialect to NewWriter")
		return
	}
	s.wantWritten(t, difficult[:1])
	for _, table := range []string{"orders", "outbox"} {
		_, err := s.DB.ExecContext(context.Background(), "DELETE FROM "+table)
		check(t, err)
	}
}

func wantNamed(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one with %q", what, err, want)
	}
}

// told is an observer that calls the function heard for each failure of a sink.
type told struct {
	relay.NoObserver
	heard func()
}

func (o told) SinkDown(string, sinks.Reason, string) { o.heard() }
func (o told) Attempted(relay.Attempt)               { o.heard() }

// A sink that was not made by its New function accepts no message and does not panic.
func TestEmptySinksBringNothingDown(t *testing.T) {
	t.Parallel()
	for name, sink := range map[string]sinks.Sink{
		"inproc": new(inproc.Sink), "batch": new(inproc.BatchSink), "http": new(httpsink.Sink), "kafka": new(kafka.Sink),
		"idempotent": new(kafka.IdempotentSink), "rabbitmq": new(rabbitmq.Sink), "file": new(file.Sink), "stdout": new(stdout.Sink),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := memstore.New()
			db.Write(outbox.Message{Topic: "t"})
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			r, err := relay.New(db.Store(), relay.Options{
				Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}, Observer: told{heard: stop}, Logger: slog.New(slog.DiscardHandler),
			})
			check(t, err)
			if err := r.Run(ctx); err != nil && !strings.Contains(err.Error(), `close sink "main"`) {
				t.Error(err)
			}
			if err := context.Cause(ctx); err != context.Canceled {
				t.Errorf("the observer received no failure of the sink: %v", err)
			}
			if status, err := db.Store().Status(t.Context()); err != nil || status.Counts[storage.StateDone] != 0 {
				t.Errorf("the message is done, or %v", err)
			}
		})
	}
}
