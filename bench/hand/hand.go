// Package hand has handwritten loops, which lack a relay's guarantees: they don't lease lanes, check fences or
// retry. They show the rate that the tables and statements alone permit. The difference between this rate and a
// relay's rate is the cost of the relay's guarantees.
package hand

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Options define a loop.
type Options struct {
	Keep    bool // move rows to the table of done rows instead of deleting them
	Rows    bool // lease rows with an UPDATE first, instead of reading lanes
	Mark    bool // mark leased rows as done in place instead of moving them
	Native  bool // on PostgreSQL: read lanes through pgx instead of database/sql
	Batch   int
	Workers int
}

// columns are the columns that a loop must read to deliver a message.
const columns = "id, message_id, topic, message_key, payload, headers, attempts, created_at"

// kept are the columns that are copied to the table of done rows.
const kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at"

// Drain runs the loop until the table is empty, and returns how long that took, including the time to
// connect, and the number of rows.
func Drain(ctx context.Context, d *table.Database, o Options) (took time.Duration, rows int, err error) {
	began := time.Now()
	pool, err := d.Pool()
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	loop := loop{Database: d, Options: o, pool: pool, sql: statements(d.Dialect.Name(), o.Rows)}
	if loop.sql.readAll != "" {
		o.Workers = 1 // SQLite has one writer
	}
	counts, errs := make([]int, o.Workers), make([]error, o.Workers)
	var workers sync.WaitGroup
	for worker := range o.Workers {
		workers.Go(func() { counts[worker], errs[worker] = loop.work(ctx, worker) })
	}
	workers.Wait()
	for _, count := range counts {
		rows += count
	}
	return time.Since(began), rows, errors.Join(errs...)
}

type loop struct {
	*table.Database
	Options
	pool *sql.DB
	sql  texts
}

func (l loop) work(ctx context.Context, worker int) (rows int, err error) {
	conn, err := l.pool.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if l.Rows {
		return l.claim(ctx, conn, worker)
	}
	if l.sql.readAll != "" {
		return l.toTheEnd(ctx, conn, "TRUE", l.sql.readAll)
	}
	for lane := worker; lane < 64; lane += l.Workers {
		count, err := l.toTheEnd(ctx, conn, "lane = "+strconv.Itoa(lane), l.sql.read, lane)
		if err != nil {
			return 0, fmt.Errorf("drain lane %d: %w", lane, err)
		}
		rows += count
	}
	return rows, nil
}

// toTheEnd reads rows in the order of ids with the given statement, and settles them (see [loop.settle]),
// until no rows are left.
func (l loop) toTheEnd(ctx context.Context, conn *sql.Conn, where, text string, args ...any) (rows int, err error) {
	for after := int64(0); ; {
		ids, err := l.read(ctx, conn, text, append(args[:len(args):len(args)], after, l.Batch)...)
		if err != nil {
			return 0, err
		}
		if len(ids) > 0 {
			if err := l.settle(ctx, conn, where, ids); err != nil {
				return 0, err
			}
			after = ids[len(ids)-1]
		}
		rows += len(ids)
		if len(ids) < l.Batch {
			return rows, nil
		}
	}
}

// claim leases and settles batches of rows until no rows are left.
func (l loop) claim(ctx context.Context, conn *sql.Conn, worker int) (rows int, err error) {
	for {
		ids, err := l.lease(ctx, conn, "worker-"+strconv.Itoa(worker))
		if err != nil || len(ids) == 0 {
			return rows, err
		}
		if err := l.settle(ctx, conn, "claimed_by = 'worker-"+strconv.Itoa(worker)+"'", ids); err != nil {
			return 0, err
		}
		rows += len(ids)
	}
}

// settle moves, deletes or marks the rows with these ids, as the options require.
func (l loop) settle(ctx context.Context, conn *sql.Conn, where string, ids []int64) error {
	texts := l.settling()
	if len(texts) == 1 {
		_, err := conn.ExecContext(ctx, fill(texts[0], where, ids))
		return err
	}
	tx, err := l.begin(ctx, conn)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, text := range texts {
		if _, err := tx.ExecContext(ctx, fill(text, where, ids)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (l loop) settling() []string {
	switch {
	case l.Mark:
		return l.sql.mark
	case l.Keep:
		return l.sql.move
	}
	return l.sql.remove
}

// begin begins a transaction. If the database has isolation levels, it uses READ COMMITTED, so
// that the transaction locks no gaps between rows.
func (l loop) begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	if l.Dialect.Name() == "sqlite" {
		return conn.BeginTx(ctx, nil)
	}
	return conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

// keyOf returns the name of the index that finds rows by their ids, in one lane or in all lanes.
func keyOf(where string) string {
	if strings.HasPrefix(where, "lane") {
		return "PRIMARY"
	}
	return "id"
}

// fill replaces the placeholders {where}, {key} and {ids} of a statement with a condition, the name
// of the index for this condition, and a list of ids.
func fill(text, where string, ids []int64) string {
	list := make([]byte, 0, 12*len(ids))
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, id, 10)
	}
	return strings.NewReplacer("{where}", where, "{key}", keyOf(where), "{ids}", string(list)).Replace(text)
}

func (l loop) read(ctx context.Context, conn *sql.Conn, text string, args ...any) (ids []int64, err error) {
	if !l.Native {
		return read(ctx, conn, text, args...)
	}
	err = conn.Raw(func(conn any) error {
		ids, err = readNative(ctx, conn.(*stdlib.Conn).Conn(), text, args...)
		return err
	})
	return ids, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

// read reads rows with all columns, and returns their ids.
func read(ctx context.Context, db querier, text string, args ...any) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var message message
	for rows.Next() {
		if err := message.scan(rows); err != nil {
			return nil, err
		}
		ids = append(ids, message.id)
	}
	return ids, rows.Err()
}

type message struct {
	id           int64
	uuid, topic  string
	key, headers sql.NullString
	payload      []byte
	attempts     int
	created      any
}

func (m *message) scan(rows *sql.Rows, more ...any) error {
	m.payload = nil // a new slice for each row, because a sink may keep the payload
	return rows.Scan(append([]any{&m.id, &m.uuid, &m.topic, &m.key, &m.payload, &m.headers, &m.attempts, &m.created}, more...)...)
}
