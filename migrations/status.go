package migrations

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Status lists all steps, the newest last, and says which are applied. It
// changes nothing.
func (m *Migrations) Status(ctx context.Context) ([]Migration, error) {
	m, err := m.fitted(ctx)
	if err != nil {
		return nil, err
	}
	var applied map[int64]time.Time
	var printed bool
	err = m.run(ctx, func(ctx context.Context) (err error) { // an SQLite file that others open is busy while it becomes one in WAL mode
		applied, printed, err = m.applied(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema version of table %s: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, m.explain(err)))
	}
	all := make([]Migration, 0, len(m.steps))
	for _, step := range m.steps {
		at, ok := applied[step.version]
		all = append(all, Migration{Version: step.version, Name: step.name, Applied: ok, AppliedAt: at, printed: printed})
	}
	return all, nil
}

// Pending lists the steps that Up would apply. It changes nothing.
func (m *Migrations) Pending(ctx context.Context) ([]Migration, error) {
	all, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	var pending []Migration
	for _, migration := range all {
		if !migration.Applied {
			pending = append(pending, migration)
		}
	}
	return pending, nil
}

// versionQuery selects the version of tables that something else has made.
func (m *Migrations) versionQuery() dialect.Query {
	if m.set == inboxSet {
		return m.dialect.InboxVersion(m.table)
	}
	return m.dialect.SchemaVersion(m.table)
}

// applied asks goose's table; goose's own status would create it. Where the
// printed SQL was run there is none, and the tables themselves tell.
func (m *Migrations) applied(ctx context.Context) (applied map[int64]time.Time, printed bool, err error) {
	rows, err := m.db.QueryContext(ctx, "SELECT version_id, tstamp FROM "+m.table.SchemaVersion())
	if m.dialect.Missing(err) {
		applied, err = m.appliedElsewhere(ctx)
		return applied, true, err
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	applied = make(map[int64]time.Time)
	for rows.Next() {
		var version int64
		var at any
		if err := rows.Scan(&version, &at); err != nil {
			return nil, false, err
		}
		applied[version] = timeOf(at)
	}
	return applied, false, rows.Err()
}

func (m *Migrations) appliedElsewhere(ctx context.Context) (map[int64]time.Time, error) {
	applied := make(map[int64]time.Time)
	query := m.versionQuery()
	var text string
	err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&text)
	if m.dialect.Missing(err) {
		return applied, nil
	}
	if err != nil {
		return nil, err
	}
	newest, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	for version := int64(1); version <= newest; version++ {
		applied[version] = time.Time{}
	}
	return applied, nil
}

// timeOf takes a time as whichever driver has it; one that can't be read is none.
func timeOf(value any) time.Time {
	switch value := value.(type) {
	case time.Time:
		return value
	case []byte:
		at, _ := time.Parse(time.DateTime, string(value))
		return at
	default:
		return time.Time{}
	}
}
