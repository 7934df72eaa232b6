package libraries

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	entdialect "entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

// shop is a database with an outbox and a table of orders.
type shop struct {
	testdb.Database
	dialect dialect.Dialect
	writer  *outbox.Writer
}

// library inserts an order and writes messages in one transaction. Before the commit it calls its
// last argument, and rolls back if that function returns an error.
type library func(ctx context.Context, s shop, messages []outbox.Message, after func() error) error

// libraries has the tested libraries. A name ends, after the slash, with the handle that
// outbox/README.md recommends for Write.
var libraries = map[string]library{
	"database sql/tx":                     bySQL,
	"sqlx/tx":                             bySQLX,
	"bun/tx.Tx":                           byBun,
	"gorm/tx.Statement.ConnPool":          byGorm,
	"gorm prepared/tx.Statement.ConnPool": byGormPrepared,
	"ent/tx":                              byEnt,
	"sqlc/the DBTX":                       bySqlc,
	"sqlc pgx/outbox.Pgx of the DBTX":     bySqlcPgx,
}

func bySQL(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, takeOrder)
	if err := errors.Join(err, s.writer.Write(ctx, tx, messages...), after()); err != nil {
		return err
	}
	return tx.Commit()
}

func bySQLX(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	tx, err := sqlx.NewDb(s.DB, s.Driver).BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.NamedExecContext(ctx, "INSERT INTO orders (id) VALUES (:id)", map[string]any{"id": 1})
	if err := errors.Join(err, s.writer.Write(ctx, tx, messages...), after()); err != nil {
		return err
	}
	return tx.Commit()
}

func byBun(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	type order struct {
		bun.BaseModel `bun:"table:orders"`
		ID            int `bun:"id,pk"`
	}
	return bunOf(s).RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&order{ID: 1}).Exec(ctx)
		return errors.Join(err, s.writer.Write(ctx, tx.Tx, messages...), after())
	})
}

func bunOf(s shop) *bun.DB {
	var d schema.Dialect = pgdialect.New()
	switch s.Kind {
	case testdb.MariaDB, testdb.MySQL:
		d = mysqldialect.New()
	case testdb.SQLite:
		d = sqlitedialect.New()
	}
	return bun.NewDB(s.DB, d)
}

func byGorm(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	return withGorm(ctx, s, messages, after, false)
}

func byGormPrepared(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	return withGorm(ctx, s, messages, after, true)
}

var errNoDriver = errors.New("the library's driver isn't in this module")

func withGorm(ctx context.Context, s shop, messages []outbox.Message, after func() error, prepared bool) error {
	var d gorm.Dialector
	switch s.Kind {
	case testdb.Postgres:
		d = gormpostgres.New(gormpostgres.Config{Conn: s.DB})
	case testdb.MariaDB, testdb.MySQL:
		d = gormmysql.New(gormmysql.Config{Conn: s.DB})
	case testdb.SQLite:
		d = gormsqlite.New(gormsqlite.Config{Conn: s.DB})
	default:
		return errNoDriver
	}
	type Order struct{ ID int }
	db, err := gorm.Open(d, &gorm.Config{PrepareStmt: prepared, Logger: logger.Discard})
	if err != nil {
		return err
	}
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		err := tx.Create(&Order{ID: 1}).Error
		return errors.Join(err, s.writer.Write(ctx, tx.Statement.ConnPool, messages...), after())
	})
}

// byEnt uses the driver under ent's generated code. With the feature sql/execquery, ExecContext
// of an *ent.Tx calls that driver.
func byEnt(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	name := map[string]string{testdb.Postgres: entdialect.Postgres, testdb.MariaDB: entdialect.MySQL, testdb.MySQL: entdialect.MySQL, testdb.SQLite: entdialect.SQLite}[s.Kind]
	tx, err := entsql.OpenDB(name, s.DB).Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	query, args := entsql.Dialect(name).Insert("orders").Columns("id").Values(1).Query()
	err = tx.Exec(ctx, query, args, nil)
	if err := errors.Join(err, s.writer.Write(ctx, tx.(outbox.Execer), messages...), after()); err != nil {
		return err
	}
	return tx.Commit()
}

func bySqlc(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	queries := New(s.DB).WithTx(tx)
	err = queries.TakeOrder(ctx)
	if err := errors.Join(err, s.writer.Write(ctx, queries.db, messages...), after()); err != nil {
		return err
	}
	return tx.Commit()
}

func bySqlcPgx(ctx context.Context, s shop, messages []outbox.Message, after func() error) error {
	if s.Kind != testdb.Postgres {
		return errNoDriver
	}
	pool, err := pgxpool.New(ctx, s.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		queries := NewPgx(pool).WithTx(tx)
		err := queries.TakeOrder(ctx)
		return errors.Join(err, s.writer.Write(ctx, outbox.Pgx(queries.db), messages...), after())
	})
}

// difficult has messages with texts that have a special meaning in some library.
var difficult = []outbox.Message{
	{Topic: "plain", Key: "order-42", Payload: []byte(`{"order": 42}`), Headers: map[string]string{"a?b": "$1 ?0 ?TableName :id \\ '"}},
	{Topic: "? ?0 $1 :id @p1", Key: "?", Payload: []byte{0, 1, '?', '\\', '\'', 0xff}},
	{Topic: "nothing", Priority: 7},
	{Topic: "empty", Payload: []byte{}},
	{Topic: "later", AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)},
}

// Messages are committed or rolled back with each library's transaction. Some writes are so large
// that the Writer sends arrays to PostgreSQL.
func TestLibraries(t *testing.T) {
	t.Parallel()
	tried := map[string]int{}
	for _, target := range testdb.Targets() {
		if !slices.Contains([]string{"postgres15/pgx", "postgres15/pq", "mariadb1011/gosql", "mysql/gosql", "sqlite/modernc", "sqlite/mattn"}, target.Name) {
			continue
		}
		s := open(t, target)
		for _, name := range slices.Sorted(maps.Keys(libraries)) {
			for _, copies := range []int{1, 10} {
				t.Run(fmt.Sprintf("%s/%s/%d", target.Name, name, copies), func(t *testing.T) {
					if try(t, s, libraries[name], slices.Repeat(difficult, copies)) {
						tried[name]++
					}
				})
			}
		}
	}
	for name := range libraries {
		if tried[name] == 0 && !t.Failed() {
			t.Errorf("%s was tried on no database", name)
		}
	}
}

func open(t *testing.T, target testdb.Target) shop {
	t.Helper()
	s := shop{Database: target.OpenOutbox(t)}
	s.dialect = map[string]dialect.Dialect{testdb.Postgres: dialect.Postgres(), testdb.MariaDB: dialect.MariaDB(), testdb.MySQL: dialect.MySQL(), testdb.SQLite: dialect.SQLite()}[s.Kind]
	m, err := migrations.New(s.DB, s.dialect, migrations.Options{})
	check(t, err)
	_, err = m.Up(t.Context())
	check(t, err)
	_, err = s.DB.ExecContext(t.Context(), "CREATE TABLE orders (id bigint PRIMARY KEY)")
	check(t, err)
	s.writer, err = outbox.NewWriter(s.dialect, outbox.Options{})
	check(t, err)
	return s
}

func try(t *testing.T, s shop, write library, messages []outbox.Message) (tried bool) {
	t.Helper()
	no := errors.New("it is rolled back")
	err := write(t.Context(), s, messages, func() error { return no })
	if errors.Is(err, errNoDriver) {
		return false
	}
	if !errors.Is(err, no) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("a transaction that is rolled back ended with %v", err)
	}
	s.wantWritten(t, nil)
	check(t, write(t.Context(), s, messages, func() error { return nil }))
	s.wantWritten(t, messages)
	for _, table := range []string{"orders", "outbox"} {
		_, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+table)
		check(t, err)
	}
	return true
}

// wantWritten requires that the tables have these messages unchanged, and an order if there are
// messages.
func (s shop) wantWritten(t *testing.T, want []outbox.Message) {
	t.Helper()
	var orders int
	check(t, s.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&orders))
	if (orders > 0) != (len(want) > 0) {
		t.Errorf("there are %d orders", orders)
	}
	got := outboxtest.Messages(t, s.DB, s.dialect, "outbox")
	if len(got) != len(want) {
		t.Fatalf("%d messages are there, want %d", len(got), len(want))
	}
	for i := range got {
		got[i].ID = ""
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("message %d is %#v, want %#v", i, got[i], want[i])
		}
	}
}

// The Writer refuses a handle that formats statements itself, before a statement reaches the
// database. The error names the handle to use instead.
func TestHandlesThatFormatStatements(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Name != "postgres15/pgx" {
			continue
		}
		s := open(t, target)
		err := bunOf(s).RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			return s.writer.Write(ctx, tx, difficult...)
		})
		if err == nil || !strings.Contains(err.Error(), "tx.Tx") {
			t.Errorf("with a bun.Tx the error is %v", err)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var _ outbox.Execer = (*sql.Tx)(nil)
