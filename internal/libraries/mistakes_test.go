package libraries

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"

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
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// A mistake that compiles is answered with an error that names it, and what to do;
// not with a panic, nor with a database's opinion of our statements.
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
		"writer: locks without one":     {func() error { return locking.Write(ctx, new(sql.DB), m) }, "give the *sql.Tx"},
		"writer: nil dialect":           {func() error { _, err := outbox.NewWriter(nil, outbox.Options{}); return err }, "give dialect.Postgres()"},
		"pgx: no transaction":           {func() error { return writer.Write(ctx, outbox.Pgx(pgx.Tx(nil)), m) }, "the transaction is nil"},
		"pgx: nil *pgxpool.Tx":          {func() error { return writer.Write(ctx, outbox.Pgx((*pgxpool.Tx)(nil)), m) }, "the transaction is nil"},
		"pgx: nil *pgx.Conn":            {func() error { return writer.Write(ctx, outbox.Pgx((*pgx.Conn)(nil)), m) }, "the transaction is nil"},
		"pgx: nil batch":                {func() error { return writer.Write(ctx, outbox.PgxBatch((*pgx.Batch)(nil)), m) }, "the transaction is nil"},
		"inbox: no transaction":         {func() error { return once(nil) }, "the transaction is nil"},
		"inbox: nil *sql.Tx":            {func() error { return once((*sql.Tx)(nil)) }, "the transaction is nil (*sql.Tx)"},
		"inbox: a pool":                 {func() error { return once(new(sql.DB)) }, "give the *sql.Tx"},
		"inbox: nil database to Do":     {func() error { _, err := in.Do(ctx, nil, "id", func(*sql.Tx) error { return nil }); return err }, "sql.Open"},
		"inbox: nil effect":             {func() error { _, err := in.Do(ctx, new(sql.DB), "id", nil); return err }, "a function"},
		"inbox: nil database to Clean":  {func() error { _, err := in.Clean(ctx, (*sql.DB)(nil)); return err }, "sql.Open"},
		"inbox: nil dialect":            {func() error { _, err := inbox.New(nil, "billing", inbox.Options{}); return err }, "give dialect.Postgres()"},
		"store: nil database":           {func() error { _, err := sqlstore.Open(ctx, nil, dialect.Postgres(), sqlstore.Options{}); return err }, "sql.Open"},
		"store: nil dialect":            {func() error { _, err := sqlstore.Open(ctx, new(sql.DB), nil, sqlstore.Options{}); return err }, "give dialect.Postgres()"},
		"migrations: nil dialect":       {func() error { _, err := migrations.New(nil, nil, migrations.Options{}); return err }, "give dialect.Postgres()"},
		"migrations: nil database":      {func() error { _, err := noDB.Up(ctx); return err }, "sql.Open"},
		"relay: no store":               {func() error { _, err := relay.New(nil, relay.Options{}); return err }, "sqlstore.Open"},
		"relay: nil *sqlstore.Store":    {func() error { _, err := relay.New((*sqlstore.Store)(nil), relay.Options{}); return err }, "sqlstore.Open"},
		"consumer: nil *sqlstore.Store": {func() error { _, err := relay.NewConsumer((*sqlstore.Store)(nil), relay.ConsumerOptions{}); return err }, "sqlstore.Open"},
		"relay: no sink":                {func() error { return withSink(store, nil) }, "there is no sink"},
		"relay: nil *inproc.Sink":       {func() error { return withSink(store, (*inproc.Sink)(nil)) }, "there is no sink (*inproc.Sink)"},
		"relay: nil *stdout.Sink":       {func() error { return withSink(store, (*stdout.Sink)(nil)) }, "there is no sink"},
		"inproc: nil handler":           {func() error { return said(func() { inproc.Func(nil) }) }, "need a function"},
		"inproc: nil batch handler":     {func() error { return said(func() { inproc.Batch(nil, inproc.BatchOptions{}) }) }, "needs a function"},
		"inproc: nil tx handler":        {func() error { return said(func() { inproc.Tx(nil) }) }, "needs a function"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func withSink(store storage.Store, sink sinks.Sink) error {
	_, err := relay.New(store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}})
	return err
}

// said is a panic as an error: these are mistakes of the program's text.
func said(f func()) (err error) {
	defer func() { err = fmt.Errorf("%v", recover()) }()
	f()
	return nil
}

// Each dialect on each other kind of database: the error says which is which,
// wherever the database doesn't do as well with the other's words.
func TestWrongDialects(t *testing.T) {
	t.Parallel()
	dialects := map[string]dialect.Dialect{testdb.Postgres: dialect.Postgres(), testdb.MariaDB: dialect.MariaDB(), testdb.SQLite: dialect.SQLite()}
	for _, target := range testdb.Targets() {
		if target.Name != "postgres15/pgx" && target.Name != "mariadb1011/gosql" && target.Name != "sqlite/modernc" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			s := open(t, target)
			for kind, d := range dialects {
				if kind == s.Kind {
					continue
				}
				_, err := sqlstore.Open(t.Context(), s.DB, d, sqlstore.Options{})
				wantNamed(t, "sqlstore.Open with "+kind, err, "the dialect is that of "+d.Name())
				m, err := migrations.New(s.DB, d, migrations.Options{Table: "other"})
				check(t, err)
				_, err = m.Up(t.Context())
				wantNamed(t, "migrations with "+kind, err, "the dialect is that of "+d.Name())
				s.wrongWriter(t, d)
			}
		})
	}
}

// wrongWriter holds that the message is there as it was, or the error names the
// dialect.
func (s shop) wrongWriter(t *testing.T, d dialect.Dialect) {
	t.Helper()
	writer, err := outbox.NewWriter(d, outbox.Options{})
	check(t, err)
	err = bySQL(t.Context(), shop{Database: s.Database, dialect: s.dialect, writer: writer}, difficult[:1], func() error { return nil })
	if err != nil {
		wantNamed(t, "writer with "+d.Name(), err, "give NewWriter the dialect of this database")
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
