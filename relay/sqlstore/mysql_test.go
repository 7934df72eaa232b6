package sqlstore_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

func mysqlTargets() (targets []testdb.Target) {
	for _, target := range testdb.Targets() {
		if isMySQL(target.Kind) {
			targets = append(targets, target)
		}
	}
	return targets
}

// mysqlTable is a table in MySQL or MariaDB. Its producers learn a row's id without RETURNING, and a test can lock its rows.
type mysqlTable struct{ table }

func (m mysqlTable) Begin(t testing.TB) storetest.Tx {
	tx := m.table.Begin(t)
	if tx == nil {
		return nil
	}
	return mysqlProducer{tx.(*producer)}
}

type mysqlProducer struct{ *producer }

func (p mysqlProducer) Insert(message outbox.Message) (id int64) {
	for _, query := range p.dialect.Insert(outboxTable, []dialect.Row{p.row(message)}) {
		result, err := p.tx.Exec(query.SQL, query.Args...)
		if err != nil {
			p.t.Errorf("insert: %v", err)
			return 0
		}
		if id, err = result.LastInsertId(); err != nil {
			p.t.Error(err)
		}
	}
	return id
}

// LockRow locks a row until unlock is called. The function waiting reports whether a session seems to wait for
// the lock: a statement in this test's database runs for a while. It doesn't read the list of transactions,
// because the server doesn't renew a list that is read often.
func (m mysqlTable) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	tx, err := m.OpenAnother(t).BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	var lane int
	if err := m.DB.QueryRow("SELECT lane FROM outbox WHERE id = ?", id).Scan(&lane); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow("SELECT id FROM outbox WHERE lane = ? AND id = ? FOR UPDATE", lane, id).Scan(&id); err != nil {
		t.Fatal(err)
	}
	waiting = func() bool { return m.longStatements(t) > 0 }
	unlock = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(unlock)
	return waiting, unlock
}

// longStatements returns the number of running statements in the test's database, or 0 if none was running
// at one of three counts. It doesn't query the list as a table, because MySQL fails if a statement in it
// has binary text.
func (m mysqlTable) longStatements(t testing.TB) (count int) {
	var database string
	if err := m.DB.QueryRow("SELECT DATABASE()").Scan(&database); err != nil {
		t.Error(err)
	}
	for range 3 { // a statement that is running at three successive counts probably waits for a lock
		if count = m.runningStatements(t, database); count == 0 {
			return 0
		}
	}
	return count
}

func (m mysqlTable) runningStatements(t testing.TB, database string) (count int) {
	rows, err := m.DB.Query("SHOW FULL PROCESSLIST")
	for err != nil && m.dialect.Busy(err) { // another test runs a statement that the list can't show
		rows, err = m.DB.Query("SHOW FULL PROCESSLIST")
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Error(err)
	}
	values := make([]sql.RawBytes, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Error(err)
		}
		of := func(column string) string { return string(values[slices.Index(columns, column)]) }
		if command := of("Command"); of("db") == database && (command == "Query" || command == "Execute") && strings.Contains(of("Info"), "outbox") {
			count++
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return count
}
