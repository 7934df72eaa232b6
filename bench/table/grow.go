package table

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// grown is the number of rows that Grow copies with each statement: one row of each key.
const grown = 5_000

// Grow writes a backlog like Fill, but takes a tenth of the time: it writes the first rows, and
// lets the database copy them repeatedly.
func (d *Database) Grow(ctx context.Context, m Messages) error {
	first := m
	first.Count = min(m.Count, grown)
	if err := d.Write(ctx, first); err != nil {
		return err
	}
	const columns = "topic, message_key, payload"
	if err := d.do(ctx, "CREATE TABLE first_rows AS SELECT "+columns+" FROM outbox"); err != nil {
		return err
	}
	var copies []string
	for n := grown; n < m.Count; n += grown {
		copies = append(copies, fmt.Sprintf("INSERT INTO outbox ("+columns+") SELECT "+columns+" FROM first_rows LIMIT %d", min(grown, m.Count-n)))
	}
	if err := d.together(ctx, copies); err != nil {
		return err
	}
	if err := d.do(ctx, "DROP TABLE first_rows"); err != nil {
		return err
	}
	return d.Rest(ctx)
}

// together executes statements in concurrent sessions on PostgreSQL, in any order, and sequentially
// on other databases.
func (d *Database) together(ctx context.Context, statements []string) error {
	if d.Dialect.Name() != "postgres" {
		return d.do(ctx, statements...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue, errs := make(chan string, len(statements)), make([]error, 4)
	for _, statement := range statements {
		queue <- statement
	}
	close(queue)
	var sessions sync.WaitGroup
	for session := range errs {
		sessions.Go(func() {
			for statement := range queue {
				if errs[session] = d.hurry(ctx, statement); errs[session] != nil {
					cancel()
					return
				}
			}
		})
	}
	sessions.Wait()
	return errors.Join(errs...)
}

// hurry executes a statement whose commit doesn't wait for the disk.
func (d *Database) hurry(ctx context.Context, statement string) error {
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range []string{"SET LOCAL synchronous_commit = off", statement} {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%.60s…: %w", s, err)
		}
	}
	return tx.Commit()
}

// Burst writes messages of 256 B with 5,000 keys in one statement. It works only on PostgreSQL.
func (d *Database) Burst(ctx context.Context, messages int) error {
	return d.do(ctx, fmt.Sprintf("INSERT INTO outbox (topic, message_key, payload)"+
		" SELECT 'burst', "+filledKey+", convert_to(repeat('x', 256), 'UTF8') FROM generate_series(1, %d) AS n", messages))
}

// Size is the size of a table and its indexes in bytes.
type Size struct{ Table, Indexes int64 }

// SizeOf returns the size of a PostgreSQL table.
func (d *Database) SizeOf(ctx context.Context, table string) (s Size, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT pg_table_size('"+table+"'), pg_indexes_size('"+table+"')").Scan(&s.Table, &s.Indexes)
	return s, err
}

// String returns the size in MiB.
func (s Size) String() string { return fmt.Sprintf("%d+%d MiB", s.Table>>20, s.Indexes>>20) }

// Estimate returns a table's number of rows according to PostgreSQL's statistics.
func (d *Database) Estimate(ctx context.Context, table string) (rows int64, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = '"+table+"'").Scan(&rows)
	return rows, err
}
