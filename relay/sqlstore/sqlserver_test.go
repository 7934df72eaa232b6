package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlserver"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// scriptedSQLServer behaves like SQL Server's driver: numbers are int64, a text payload is UTF-16, and
// transactions have an isolation level.
type scriptedSQLServer struct{ *scripted }

func (s scriptedSQLServer) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (s scriptedSQLServer) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	if options.Isolation != driver.IsolationLevel(sql.LevelReadCommitted) {
		return nil, errors.New("the level isn't READ COMMITTED")
	}
	return s, nil
}

func openScriptedSQLServer(t *testing.T, more map[string][][]driver.Value) (*sqlstore.Store, error) {
	t.Helper()
	server := scriptedSQLServer{&scripted{answers: map[string][][]driver.Value{
		"N'ProductVersion'": {{"version", "16.0.4135.4"}, {"edition", "3"}, {"database", "shop"}, {"level", "160"}, {"snapshot", "1"}, {"read committed snapshot", "0"}},
		"WHERE lane = 0":    {{int64(0)}},
		"lane IN (0, 1)":    {{int64(1)}},
		"name = N'schema'":  {{strconv.Itoa(migrations.Version)}},
		"SELECT COALESCE((": {{int64(7)}},
		"N'open'":           {{"number", "2001"}, {"open", "2002"}, {"server", "S/5/HOST/42/x/y"}},
	}}}
	for part, rows := range more {
		server.answers[part] = rows
	}
	db := sql.OpenDB(server)
	t.Cleanup(func() { _ = db.Close() })
	return sqlstore.Open(t.Context(), db, dialect.SQLServer(), sqlstore.Options{})
}

func TestSQLServerDriverValuesAreConverted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 23, 59, 59, 123456700, time.UTC)
	none := []driver.Value{"7 0 0 0 S/5/HOST/42/x/y", int64(0), int64(0), "", "", "", "", nil, "", nil, nil, int64(0), int64(0), int64(0), nil, int64(0)}
	text := []driver.Value{nil, int64(7), int64(3), "0197a3b4-0000-7abc-8def-0123456789ab", "orders", "k", "a,b", []byte("\xe4\x00\x3d\xd8\x00\xde"), "", nil, at, int64(0), int64(1), int64(0), at, int64(9)}
	store, err := openScriptedSQLServer(t, map[string][][]driver.Value{
		"AS page":  {none, text},
		"@changed": {{"changed", int64(1), int64(0)}, {"lane", int64(3), int64(8)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 3}}, Limit: 10, MaxBytes: 1 << 20})
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("Read = %+v, %v; want a row", page, err)
	}
	if row := page.Rows[0]; string(row.Message.Payload) != "ä😀" || row.CreatedAt != at || row.Message.ExpiresAt != at || row.Attempts != 1 || row.Sinks != "a,b" {
		t.Errorf("the row is %+v, want its payload in UTF-8", row)
	}
	settled, err := store.Settle(t.Context(), "r", true, []storage.Settlement{
		{ID: 7, Lane: 3, MessageID: page.Rows[0].Message.ID, Fence: 8, State: storage.StateDone},
		{ID: 9, Lane: 4, MessageID: page.Rows[0].Message.ID, Fence: 1, State: storage.StateDone}})
	if err != nil || settled != (storage.Settled{Changed: 1, Fenced: 1}) {
		t.Errorf("Settle = %+v, %v; want one changed, one fenced", settled, err)
	}
}

func TestSQLServerWithoutSnapshotsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := openScriptedSQLServer(t, map[string][][]driver.Value{
		"N'ProductVersion'": {{"version", "16.0.4135.4"}, {"edition", "3"}, {"database", "shop"}, {"level", "160"}, {"snapshot", "0"}, {"read committed snapshot", "0"}},
	})
	if err == nil || !strings.Contains(err.Error(), "ALTER DATABASE [shop] SET ALLOW_SNAPSHOT_ISOLATION ON") {
		t.Errorf("Open = %v, want an error with the statement to run", err)
	}
}

// The tests below run only if ROWRELAY_TEST_SQLSERVER names a server.

func sqlServerTarget(t *testing.T) testdb.Target {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Kind == testdb.SQLServer {
			return target
		}
	}
	t.Skip("ROWRELAY_TEST_SQLSERVER is not set")
	return testdb.Target{}
}

// sqlServerTable is a table in SQL Server. Its producers get a row's id by OUTPUT, and a test can lock its rows.
type sqlServerTable struct{ table }

func (s sqlServerTable) Begin(t testing.TB) storetest.Tx {
	tx := s.table.Begin(t)
	if tx == nil {
		return nil
	}
	return sqlServerProducer{tx.(*producer)}
}

type sqlServerProducer struct{ *producer }

func (p sqlServerProducer) Insert(message outbox.Message) (id int64) {
	for _, query := range p.dialect.Insert(outboxTable, []dialect.Row{p.row(message)}) {
		statement := strings.Replace(query.SQL, " VALUES ", " OUTPUT inserted.id VALUES ", 1)
		if err := p.tx.QueryRow(statement, query.Args...).Scan(&id); err != nil {
			p.t.Errorf("insert: %v", err)
		}
	}
	return id
}

func (p sqlServerProducer) InsertAs(id int64, message outbox.Message) {
	for _, on := range []string{"ON", "OFF"} {
		if _, err := p.tx.Exec("SET IDENTITY_INSERT outbox " + on); err != nil {
			p.t.Error(err)
		}
		if on == "ON" {
			p.producer.InsertAs(id, message)
		}
	}
}

func (s sqlServerTable) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	tx, err := s.OpenAnother(t).BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	var locker int
	err = tx.QueryRow("SELECT @@SPID FROM outbox WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE lane IN (SELECT lane FROM outbox_lanes) AND id = @p1", id).Scan(&locker)
	if err != nil {
		t.Fatal(err)
	}
	waiting = func() bool {
		var count int
		if err := s.DB.QueryRow("SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id = @p1", locker).Scan(&count); err != nil {
			t.Error(err)
		}
		return count > 0
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(unlock)
	return waiting, unlock
}

// A key has the same lane whether it is a parameter or a literal, with or without N. Keys that differ by case or by spaces at the
// end are different keys.
func TestSQLServerKeyHasOneLane(t *testing.T) {
	t.Parallel()
	table := sqlServerTable{open(t, sqlServerTarget(t))}
	tx := table.Begin(t)
	for _, key := range []string{"k", "K", "ключ", "k ", " "} {
		tx.Insert(outbox.Message{Topic: "a", Key: key})
	}
	tx.Commit()
	exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('a', 'k'), (N'a', N'k'), ('a', 'K'), (N'a', N'ключ'), ('a', 'k '), ('a', ' ')")
	const lanes = `SELECT COUNT(*) FROM (SELECT CONVERT(varbinary(510), message_key) AS bytes, DATALENGTH(message_key) AS length, COUNT(*) AS written, COUNT(DISTINCT lane) AS lanes
		FROM outbox GROUP BY CONVERT(varbinary(510), message_key), DATALENGTH(message_key)) AS k WHERE lanes = 1 AND written >= 2`
	var keys int
	if err := table.DB.QueryRowContext(t.Context(), lanes).Scan(&keys); err != nil || keys != 5 {
		t.Errorf("%d keys have one lane each, %v; want 5", keys, err)
	}
}

// A statement that sets an isolation level resets it, also if the statement fails, because an application may
// share the pool.
func TestSQLServerStatementsRestoreTheIsolationLevel(t *testing.T) {
	t.Parallel()
	opened := open(t, sqlServerTarget(t))
	conn, err := opened.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	missing, err := dialect.ParseTable("missing")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []dialect.Table{outboxTable, missing} {
		ctx := t.Context()
		recorder := &backendtest.Recorder{}
		db := recorder.DB()
		b := sqlserver.New(db, dialect.SQLServer(), of)
		_, _ = backend.ReadStatus(ctx, db, b.Capabilities())
		_, _ = b.Read(ctx, backend.Read{}, nil)
		_, _ = backend.Any(ctx, db, b.Due([]int{1}, storage.DueCursor{}, 1, 1))
		_ = db.Close()
		for _, query := range recorder.Taken()[1:] { // the first statement reads the claim mode and sets no level
			if _, err := conn.ExecContext(t.Context(), query.SQL, query.Args...); (err != nil) != (of == missing) {
				t.Errorf("on table %s: %v", of, err)
			}
			var level int
			if err := conn.QueryRowContext(t.Context(), "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID").Scan(&level); err != nil || level != 2 {
				t.Errorf("after %.60s… on table %s the level is %d, %v; want 2 (READ COMMITTED)", query.SQL, of, level, err)
			}
		}
	}
}
