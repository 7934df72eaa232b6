package sqlstore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// Fixed rows are rows that the tables must always have: the lanes, and rows that serve as locks. Fixed rows are
// missing after a TRUNCATE, or in tables that were copied without rows. Messages of a missing lane would never be
// delivered.

// fixedEach is the interval at which a relay counts the fixed rows.
const fixedEach = 30 * time.Second

// missingRows describes the missing fixed rows, and returns the statements that restore them. It skips tables
// that this user may not read: a relay, for example, doesn't need the privilege to read the locks of keys.
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

// count runs a query in a transaction and ends the transaction. Otherwise a session without autocommit would
// leave a transaction open.
func (s *Store) count(ctx context.Context, query backend.Query) (count int, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	err = backend.One(ctx, tx, query, &count)
	return count, err
}

// restoreRows inserts the missing fixed rows. It returns an error if this user may not insert them, because otherwise no error would report
// that some messages are never delivered.
func (s *Store) restoreRows(ctx context.Context) error {
	missing, fill, err := s.missingRows(ctx)
	if err != nil {
		return err
	}
	for _, query := range fill {
		if _, err := backend.Exec(ctx, s.db, query); err != nil {
			return fmt.Errorf("%s, and without the missing rows some messages are never delivered; rowrelay migrate up restores them: %w", missing, err)
		}
	}
	return nil
}

// restoreLanes restores fixed rows before Open tests SKIP LOCKED, because the test locks the row of a lane. If the rows
// can't be counted, it ignores the error, because later statements of Open return the same error.
func (s *Store) restoreLanes(ctx context.Context) error {
	if missing, _, err := s.missingRows(ctx); err != nil || missing == "" || s.options.Operator {
		return nil
	}
	return s.restoreRows(ctx)
}

// keepRows restores the fixed rows while a relay runs, at most once every fixedEach. It returns an error if
// row-level security may hide rows from the relay.
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
		return Finding{Name: "rows", Detail: missing + ": some messages are never delivered, or are delivered out of order", Hint: "run rowrelay migrate up, which restores them; use DELETE FROM outbox, not TRUNCATE, to empty the tables"}
	}
	return Finding{Name: "rows", OK: true, Detail: "all lane and lock rows exist"}
}

// refuseRowSecurity returns an error if policies may hide rows from this user. A relay would never deliver
// hidden rows, and a relay that drains the table would end while hidden rows remain.
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

const rowSecurityHint = "run ALTER TABLE … DISABLE ROW LEVEL SECURITY, or ALTER ROLE … BYPASSRLS"

func (s *Store) checkRowSecurity(ctx context.Context) Finding {
	if err := s.refuseRowSecurity(ctx); err != nil {
		return Finding{Name: "row security", Detail: err.Error()}
	}
	return Finding{Name: "row security", OK: true, Detail: "hides no rows from this user"}
}

// rememberFile records the database's file, if the database is a file.
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

// sameFile returns an error if the file that was opened was replaced or removed. Open connections would continue
// to use the old file, to which producers no longer write.
func (s *Store) sameFile() error {
	if s.file == nil {
		return nil
	}
	if now, err := os.Stat(s.path); err != nil || !os.SameFile(now, s.file) {
		return fmt.Errorf("the file %s was replaced or removed after it was opened: restart this program", s.path)
	}
	return nil
}
