package hand

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Poll polls for rows at an interval, calls the function `deliver` with each message's id, and moves the rows to the
// table of done rows, until the context ends.
func Poll(ctx context.Context, d *table.Database, every time.Duration, deliver func(id string)) error {
	pool, err := d.Pool()
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	p := poll{Database: d, conn: conn, deliver: deliver}
	for timer := time.NewTicker(every); ; {
		if err := p.look(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("poll: %w", err)
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

type poll struct {
	*table.Database
	conn    *sql.Conn
	deliver func(id string)
}

// look reads and settles rows until no rows are left.
func (p poll) look(ctx context.Context) error {
	for {
		found, err := p.read(ctx)
		if err != nil || len(found.ids) == 0 {
			return err
		}
		if err := p.settle(ctx, found); err != nil {
			return err
		}
	}
}

// found has the lanes and ids of some rows.
type found struct {
	lanes []int32
	ids   []int64
}

func (p poll) read(ctx context.Context) (f found, err error) {
	rows, err := p.conn.QueryContext(ctx, "SELECT "+columns+", lane FROM outbox ORDER BY lane, id LIMIT 500")
	if err != nil {
		return f, err
	}
	defer rows.Close()
	var m message
	var lane int32
	for rows.Next() {
		if err := m.scan(rows, &lane); err != nil {
			return f, err
		}
		p.deliver(m.uuid)
		f.lanes, f.ids = append(f.lanes, lane), append(f.ids, m.id)
	}
	return f, rows.Err()
}

// settle moves the rows to the table of done rows. On PostgreSQL it always executes the same
// text, so the driver prepares the statement only once.
func (p poll) settle(ctx context.Context, f found) error {
	texts := statements(p.Dialect.Name(), false)
	if p.Dialect.Name() == "postgres" {
		text := fill(texts.move[0], "lane = ANY ($1)", nil)
		_, err := p.conn.ExecContext(ctx, strings.Replace(text, "ANY ('{}')", "ANY ($2)", 1), f.lanes, f.ids)
		return err
	}
	lanes := strings.Trim(strings.ReplaceAll(fmt.Sprint(f.lanes), " ", ","), "[]")
	l := loop{Database: p.Database, Options: Options{Keep: true}, sql: texts}
	return l.settle(ctx, p.conn, "lane IN ("+lanes+")", f.ids)
}
