package table

import (
	"context"
	"fmt"
)

// Grow writes a backlog like Fill, in the database itself: it copies the first
// rows again and again, which takes a tenth of the time.
func (d *Database) Grow(ctx context.Context, m Messages) error {
	const chunk = 500_000
	first := m
	first.Count = min(m.Count, 5_000)
	if err := d.Fill(ctx, first); err != nil {
		return err
	}
	for n := first.Count; n < m.Count; {
		more := min(n, m.Count-n, chunk)
		copied := fmt.Sprintf("INSERT INTO outbox (topic, message_key, payload)"+
			" SELECT topic, message_key, payload FROM outbox ORDER BY lane, id LIMIT %d", more)
		if _, err := d.DB.ExecContext(ctx, copied); err != nil {
			return fmt.Errorf("let the backlog grow: %w", err)
		}
		n += more
	}
	return d.Rest(ctx)
}

// Burst writes messages at once, in PostgreSQL itself: of 256 B, with 5,000 keys.
func (d *Database) Burst(ctx context.Context, messages int) error {
	return d.do(ctx, fmt.Sprintf("INSERT INTO outbox (topic, message_key, payload)"+
		" SELECT 'burst', "+filledKey+", convert_to(repeat('x', 256), 'UTF8') FROM generate_series(1, %d) AS n", messages))
}

// Size is the room that a table and its indexes take, in bytes.
type Size struct{ Table, Indexes int64 }

// SizeOf measures a table of PostgreSQL.
func (d *Database) SizeOf(ctx context.Context, table string) (s Size, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT pg_table_size('"+table+"'), pg_indexes_size('"+table+"')").Scan(&s.Table, &s.Indexes)
	return s, err
}

// String is the size in MiB.
func (s Size) String() string { return fmt.Sprintf("%d+%d MiB", s.Table>>20, s.Indexes>>20) }

// Estimate is the number of rows that PostgreSQL's statistics tell.
func (d *Database) Estimate(ctx context.Context, table string) (rows int64, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = '"+table+"'").Scan(&rows)
	return rows, err
}
