package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
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
		var count int
		if err := backend.One(ctx, s.db, rows.Count, &count); s.dialect.Denied(err) {
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

// keepRows is restoreRows now and then, for a relay that lives.
func (s *Store) keepRows(ctx context.Context) error {
	now := time.Now()
	if now.Sub(time.Unix(0, s.rowsCounted.Load())) < fixedEach {
		return nil
	}
	if err := s.restoreRows(ctx); err != nil {
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
		return Finding{Name: "rows", Detail: missing + ", without which messages are never delivered, or lose their order", Hint: "run rowrelay migrate up, which restores them; use DELETE FROM outbox, and no TRUNCATE, to empty the tables"}
	}
	return Finding{Name: "rows", OK: true, Detail: "all lanes and locks are there"}
}
