package sqlstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// The rows that the tables always have: the lanes, and rows that stand for locks. A TRUNCATE takes them
// away, and so does a copy of the tables without their rows. Then the keys of missing lanes would never be
// delivered.

// fixedEach is how often a relay counts them.
const fixedEach = 30 * time.Second

// missingRows describes which of these rows are missing, and how to restore them. A table that this user
// may not read, as a relay need not read locks of keys, is left out.
func (s *Store) missingRows(ctx context.Context) (missing string, fill []backend.Query, err error) {
	var all []string
	for _, rows := range s.dialect.FixedRows(s.table) {
		count, err := s.count(ctx, rows.Count)
		if s.dialect.Denied(err) {
			continue
		} else if err != nil {
			return "", nil, err
		}
		if count < rows.Want {
			all, fill = append(all, fmt.Sprintf("table %s has %d of its %d rows", rows.Table, count, rows.Want)), append(fill, rows.Fill)
		}
	}
	return strings.Join(all, ", "), fill, nil
}

// count runs a query in a transaction of its own, so that none stays open where the session has
// autocommit off.
func (s *Store) count(ctx context.Context, query backend.Query) (count int, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	err = backend.One(ctx, tx, query, &count)
	return count, err
}

// restoreRows inserts the missing ones. It fails where this user may not: then nothing else
// tells that messages wait for ever.
func (s *Store) restoreRows(ctx context.Context) error {
	missing, fill, err := s.missingRows(ctx)
	if err != nil {
		return err
	}
	for _, query := range fill {
		if _, err := backend.Exec(ctx, s.db, query); err != nil {
			return fmt.Errorf("%s, without which messages are never delivered; run rowrelay migrate up: %w", missing, err)
		}
	}
	return nil
}

// restoreLanes restores what the trial of a relay's start needs. An error of the count shows again in what follows.
func (s *Store) restoreLanes(ctx context.Context) error {
	if missing, _, err := s.missingRows(ctx); err != nil || missing == "" || s.options.Operator {
		return nil
	}
	return s.restoreRows(ctx)
}

// keepRows is restoreRows now and then, for a relay that lives. It also fails when rows are hidden from it.
func (s *Store) keepRows(ctx context.Context) error {
	now := time.Now()
	if now.Sub(time.Unix(0, s.rowsCounted.Load())) < fixedEach {
		return nil
	}
	if err := s.restoreRows(ctx); err != nil {
		return err
	}
	if err := s.refuseRowSecurity(ctx); err != nil {
		return err
	}
	s.rowsCounted.Store(now.UnixNano())
	return nil
}

func (s *Store) checkFixedRows(ctx context.Context) Finding {
	missing, _, err := s.missingRows(ctx)
	if err != nil {
		return Finding{Name: "rows", Detail: err.Error()}
	}
	if missing != "" {
		return Finding{Name: "rows", Detail: missing + ": messages are never delivered or lose their order", Hint: "run rowrelay migrate up, which restores them; use DELETE FROM outbox, not TRUNCATE, to empty the tables"}
	}
	return Finding{Name: "rows", OK: true, Detail: "all lane and lock rows exist"}
}

// refuseRowSecurity fails where policies may hide rows from this user: what is hidden is never delivered,
// and a drain would take the table for empty.
func (s *Store) refuseRowSecurity(ctx context.Context) error {
	query := s.capabilities.Queries.RowSecurity
	if query.SQL == "" {
		return nil
	}
	tables, err := backend.Lines(ctx, s.db, query)
	if err == nil && len(tables) > 0 {
		err = fmt.Errorf("row-level security may hide rows of %s from this user: %s", strings.Join(tables, ", "), rowSecurityHint)
	}
	return err
}

const rowSecurityHint = "ALTER TABLE … DISABLE ROW LEVEL SECURITY, or ALTER ROLE … BYPASSRLS"

func (s *Store) checkRowSecurity(ctx context.Context) Finding {
	if err := s.refuseRowSecurity(ctx); err != nil {
		return Finding{Name: "row security", Detail: err.Error()}
	}
	return Finding{Name: "row security", OK: true, Detail: "hides no rows from this user"}
}

// rememberFile notes which file the database is, where it is one.
func (s *Store) rememberFile(ctx context.Context) (err error) {
	if query := s.capabilities.Queries.File; query.SQL != "" {
		if err := backend.One(ctx, s.db, query, &s.path); err != nil {
			return err
		}
	}
	if s.path != "" {
		s.file, err = os.Stat(s.path)
	}
	return err
}

// sameFile fails when another file stands in the place of the one that was opened: the connections go on with
// the old one, to which nobody writes any more.
func (s *Store) sameFile() error {
	if s.file == nil {
		return nil
	}
	if now, err := os.Stat(s.path); err != nil || !os.SameFile(now, s.file) {
		return fmt.Errorf("the file %s was replaced or removed after it was opened: restart", s.path)
	}
	return nil
}
