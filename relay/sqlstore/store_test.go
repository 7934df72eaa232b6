package sqlstore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

var pairs = flag.Bool("pairs", false, "run the suite with every driver of each server instead of with one")

// patience limits the wait for asynchronous results. It is long enough for slow machines.
const patience = 5 * time.Minute

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("after %v this is still not true: %s", patience, what)
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	suite, targets := newSuite(t), slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool {
		return target.Name == "mariadb1011/gosql" // this server is tested with another driver, and this driver with other servers
	})
	if *pairs || *update {
		targets = testdb.Targets()
	}
	for _, target := range append(targets, aNativePostgres(t)) {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, suite.on(t, target, harness(target)))
		})
	}
}

// nativeName is the name of the target whose pages are read by relaypgx and not by database/sql.
const nativeName = "postgres18/relaypgx"

func aNativePostgres(t *testing.T) testdb.Target {
	for _, target := range testdb.Targets() {
		if target.Name == "postgres18/pgx" {
			target.Name = nativeName
			return target
		}
	}
	t.Fatal("no target is postgres18/pgx")
	return testdb.Target{}
}

// harness returns the suite's harness for a target. Its tables have the methods that the target's kind needs.
func harness(target testdb.Target) storetest.Harness {
	return storetest.Harness{
		OneWriter: target.Kind == testdb.SQLite,
		Waits:     waits(target.Name),
		Open: func(t testing.TB) storetest.Table {
			switch opened := open(t, target); opened.Kind {
			case testdb.Postgres:
				return lockable{opened}
			case testdb.MySQL, testdb.MariaDB:
				return mysqlTable{opened}
			case testdb.Oracle:
				return oracleTable{opened}
			case testdb.SQLServer:
				return sqlServerTable{opened}
			default:
				return opened
			}
		},
	}
}

// waits reports whether the target's server has no SKIP LOCKED.
func waits(target string) bool {
	return strings.HasPrefix(target, "mariadb105")
}

// table is an outbox in a database that no other test uses.
type table struct {
	testdb.Database
	dialect dialect.Dialect
}

func open(t testing.TB, target testdb.Target) table {
	t.Helper()
	db := target.OpenOutbox(t)
	d, err := dialect.ByName(db.Kind)
	if err != nil {
		t.Fatal(err)
	}
	return table{db, d}
}

func migrate(t testing.TB, db *sql.DB, d dialect.Dialect, options migrations.Options) {
	t.Helper()
	m, err := migrations.New(db, d, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (table table) Store(t testing.TB) storetest.Store { return table.open(t) }

func (table table) open(t testing.TB) *sqlstore.Store {
	t.Helper()
	var options sqlstore.Options
	if table.Name == nativeName {
		options.Reader = relaypgx.Reader{}
	}
	store, err := sqlstore.Open(t.Context(), table.OpenAnother(t), table.dialect, options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Begin doesn't use the test's context, because that context ends before the test's cleanups run.
func (table table) Begin(t testing.TB) storetest.Tx {
	tx, err := table.DB.BeginTx(context.Background(), nil)
	if err != nil {
		t.Errorf("begin a producer's transaction: %v", err)
		return nil
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return &producer{t, tx, table.dialect}
}

// producer writes with the dialect's INSERT statement.
type producer struct {
	t       testing.TB
	tx      *sql.Tx
	dialect dialect.Dialect
}

func (p *producer) Insert(message outbox.Message) (id int64) {
	for _, query := range p.dialect.Insert(outboxTable, []dialect.Row{p.row(message)}) {
		if err := p.tx.QueryRow(query.SQL+" RETURNING id", query.Args...).Scan(&id); err != nil {
			p.t.Errorf("insert: %v", err)
		}
	}
	return id
}

// InsertAs writes a message whose row gets the given id. It writes only the columns that the checks use for such messages.
func (p *producer) InsertAs(id int64, message outbox.Message) {
	row := p.row(message)
	statement := "INSERT INTO outbox (id, message_id, topic, message_key) VALUES (" + strings.Join([]string{
		strconv.FormatInt(id, 10), "'" + row.MessageID + "'", "'" + row.Topic + "'", "'" + row.Key + "'"}, ", ") + ")"
	if _, err := p.tx.Exec(statement); err != nil {
		p.t.Errorf("insert as %d: %v", id, err)
	}
}

var outboxTable, _ = dialect.ParseTable(dialect.DefaultTable)

// Fill writes many messages per statement, as outbox.Writer does.
func (p *producer) Fill(messages []outbox.Message) {
	rows := make([]dialect.Row, len(messages))
	for i, message := range messages {
		rows[i] = p.row(message)
	}
	for _, query := range p.dialect.Insert(outboxTable, rows) {
		if _, err := p.tx.Exec(query.SQL, query.Args...); err != nil {
			p.t.Errorf("insert %d messages: %v", len(messages), err)
		}
	}
}

func (p *producer) row(message outbox.Message) dialect.Row {
	row := dialect.Row{
		MessageID: message.ID, Topic: message.Topic, Key: message.Key, Payload: message.Payload,
		AvailableAt: message.AvailableAt, ExpiresAt: message.ExpiresAt, Priority: message.Priority,
	}
	if row.MessageID == "" {
		row.MessageID = outbox.NewID()
	}
	if len(message.Headers) > 0 {
		headers, err := json.Marshal(message.Headers)
		if err != nil {
			p.t.Error(err)
		}
		row.Headers = string(headers)
	}
	return row
}

func (p *producer) Commit() {
	if err := p.tx.Commit(); err != nil {
		p.t.Errorf("commit: %v", err)
	}
}

func (p *producer) Rollback() {
	if err := p.tx.Rollback(); err != nil {
		p.t.Errorf("roll back: %v", err)
	}
}

// lockable is a table whose single rows can be locked (PostgreSQL).
type lockable struct{ table }

func (l lockable) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	tx, err := l.OpenAnother(t).BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := tx.QueryRow("SELECT pg_backend_pid() FROM outbox WHERE id = " + strconv.FormatInt(id, 10) + " FOR UPDATE").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	waiting = func() bool {
		var found bool
		if err := l.DB.QueryRow("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid).Scan(&found); err != nil {
			t.Error(err)
		}
		return found
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(unlock)
	return waiting, unlock
}
