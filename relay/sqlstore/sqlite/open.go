package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// openAs describes how to open a file with either of the usual drivers. Drivers ignore
// parameters that they don't know, and return no error.
const openAs = "open the file as file:NAME?_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL&_synchronous=FULL" +
	" (modernc.org/sqlite before 1.55: &_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL))"

// CheckPool implements [backend.PoolChecker]. It rejects a pool whose transactions fail when two of them run
// concurrently. A PRAGMA statement sets only one connection of a pool, so CheckPool checks two connections,
// unless the pool may have only one.
func (s *SQLite) CheckPool(ctx context.Context) error {
	db := s.db
	first, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = first.Close() }()
	if err := checkPragmas(ctx, first); err != nil || db.Stats().MaxOpenConnections == 1 {
		return err
	}
	second, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = second.Close() }()
	if err := checkPragmas(ctx, second); err != nil {
		return err
	}
	return checkBegin(ctx, first, second)
}

// leastBusyTimeout is the shortest busy_timeout that CheckPool accepts, in milliseconds.
const leastBusyTimeout = 1000

func checkPragmas(ctx context.Context, conn *sql.Conn) error {
	var journal string
	var timeout int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&timeout); err != nil {
		return err
	}
	if timeout < leastBusyTimeout {
		return fmt.Errorf("SQLite's busy_timeout is %d ms, so a transaction that meets another writer fails with SQLITE_BUSY: %s", timeout, openAs)
	}
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return err
	}
	if inMemory := strings.EqualFold(journal, "memory"); !inMemory && !strings.EqualFold(journal, "wal") {
		return fmt.Errorf("SQLite's journal_mode is %s, so readers and writers block each other: %s", journal, openAs)
	}
	return nil
}

// checkBegin checks that transactions begin with BEGIN IMMEDIATE, which keeps other transactions
// from writing even before the first statement. It begins a transaction on the first connection,
// and expects that BEGIN IMMEDIATE fails on the second.
func checkBegin(ctx context.Context, first, second *sql.Conn) (err error) {
	tx, err := first.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var timeout int
	if err := second.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&timeout); err != nil {
		return err
	}
	if _, err := second.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	_, refused := second.ExecContext(ctx, "BEGIN IMMEDIATE")
	if refused == nil {
		_, err = second.ExecContext(ctx, "ROLLBACK")
	}
	_, back := second.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout))
	if err := errors.Join(err, back); err != nil {
		return fmt.Errorf("test how a transaction begins: %w", err)
	}
	if refused == nil {
		return fmt.Errorf("transactions of this pool don't begin with BEGIN IMMEDIATE, so a transaction that reads before it writes fails with SQLITE_BUSY: %s", openAs)
	}
	return nil
}
