package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// fitted returns the migrations for the server that there is: one that takes the
// dialect's URLs and drivers may need other tables.
func (m *Migrations) fitted(ctx context.Context) (*Migrations, error) {
	if m.db == nil {
		return nil, fmt.Errorf("migrate table %s: the database is nil: give New the *sql.DB that sql.Open returned", m.table)
	}
	fitting, differs := m.dialect.(dialect.Fitting)
	if !differs || m.fits {
		return m, nil
	}
	facts, err := factsOf(ctx, m.db, fitting.Server())
	if err != nil {
		return nil, fmt.Errorf("ask the server of table %s for its version: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, err))
	}
	fit, err := fitting.Fit(dialect.Server{Facts: facts, Skips: true})
	if err != nil {
		return nil, fmt.Errorf("migrate table %s: %w", m.table, err)
	}
	steps, err := render(m.set, fit.Dialect.Name(), m.table)
	if err != nil {
		return nil, err
	}
	return &Migrations{db: m.db, dialect: fit.Dialect, set: m.set, table: m.table, claim: m.claim, steps: steps, fits: true}, nil
}

// factsOf reads lines of a name and a value.
func factsOf(ctx context.Context, db *sql.DB, query dialect.Query) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	facts := make(map[string]string)
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		facts[name] = value.String
	}
	return facts, rows.Err()
}
