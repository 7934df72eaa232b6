package table

import (
	"context"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Migrate creates the outbox's tables.
func (d *Database) Migrate(ctx context.Context) error { return d.MigrateFor(ctx, "") }

// MigrateFor creates the tables for a claim mode. The mode "rows" adds indexes.
func (d *Database) MigrateFor(ctx context.Context, claim string) error {
	m, err := migrations.New(d.DB, d.Dialect, migrations.Options{Claim: claim})
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return err
}

// NotifyByTrigger makes plain INSERTs notify relays on PostgreSQL.
func (d *Database) NotifyByTrigger(ctx context.Context) error {
	m, err := migrations.New(d.DB, d.Dialect, migrations.Options{Notify: "on"})
	if err == nil {
		_, err = m.Up(ctx)
	}
	return err
}

// IndexRows creates the indexes for claiming by rows, as a relay does if they are missing.
func (d *Database) IndexRows(ctx context.Context) error {
	table, err := dialect.ParseTable(dialect.DefaultTable)
	if err != nil {
		return err
	}
	for _, q := range d.Dialect.MakeRowIndexes(table) {
		if _, err := d.DB.ExecContext(ctx, q.SQL, q.Args...); err != nil {
			return fmt.Errorf("create the indexes for claiming by rows: %w", err)
		}
	}
	return nil
}

// Messages describes a backlog.
type Messages struct {
	Count   int
	Payload int                // bytes of each payload
	Key     func(n int) string // the key of message n; nil: 5,000 keys in turn
	Topic   string             // empty: "orders"
	TopicOf func(n int) string // the topic of message n; nil: the field Topic
}

func (m Messages) topic(n int) string {
	switch {
	case m.TopicOf != nil:
		return m.TopicOf(n)
	case m.Topic != "":
		return m.Topic
	}
	return "orders"
}

func (m Messages) key(n int) string {
	if m.Key == nil {
		return fmt.Sprintf("customer-%d", n%5000)
	}
	return m.Key(n)
}

// Fill writes a backlog, and makes the database do its deferred work.
func (d *Database) Fill(ctx context.Context, m Messages) error {
	if err := d.Write(ctx, m); err != nil {
		return err
	}
	return d.Rest(ctx)
}

// Write writes messages, a thousand per transaction.
func (d *Database) Write(ctx context.Context, m Messages) error {
	table, err := dialect.ParseTable(dialect.DefaultTable)
	if err != nil {
		return err
	}
	payload := []byte(strings.Repeat("x", m.Payload))
	for n := 0; n < m.Count; {
		var rows []dialect.Row
		for ; len(rows) < 1000 && n < m.Count; n++ {
			rows = append(rows, dialect.Row{MessageID: fmt.Sprintf("00000000-0000-7000-8000-%012d", n), Topic: m.topic(n), Key: m.key(n), Payload: payload})
		}
		for _, q := range d.Dialect.Insert(table, rows) {
			if _, err := d.DB.ExecContext(ctx, q.SQL, q.Args...); err != nil {
				return fmt.Errorf("fill the table: %w", err)
			}
		}
	}
	return nil
}

// Rest makes the database do its deferred work, such as VACUUM and a checkpoint, while nothing is measured.
func (d *Database) Rest(ctx context.Context) error {
	var statements []string
	switch d.Dialect.Name() {
	case "postgres":
		statements = []string{"VACUUM ANALYZE", "CHECKPOINT"}
	case "sqlite":
		statements = []string{"ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"}
	default:
		statements = []string{"ANALYZE TABLE outbox"}
	}
	for _, statement := range statements {
		if _, err := d.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Count returns the number of rows of a table.
func (d *Database) Count(ctx context.Context, table string) (n int, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	return n, err
}

// Pending reports whether the table of pending rows has rows.
func (d *Database) Pending(ctx context.Context) (left bool, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM outbox)").Scan(&left)
	return left, err
}
