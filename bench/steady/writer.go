// Package steady writes messages at a steady rate, independently of their delivery. Each message
// contains the time at which it was due.
package steady

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Topic is the topic of the messages. A [Clock] recognises the messages by this topic.
const Topic = "steady"

// Writer is an open loop: it doesn't slow down when the database does.
type Writer struct {
	Rate    int           // messages per second
	Every   time.Duration // the time between two transactions
	Payload int           // bytes of a payload
	Written func()        // called after each commit; may be nil
}

// Run writes messages until the context ends. If a transaction takes too long, the next one follows
// immediately, and its messages contain the time at which it should have begun.
func (w Writer) Run(ctx context.Context, d *table.Database) error {
	each := max(1, int(float64(w.Rate)*w.Every.Seconds()))
	next := time.Now()
	for n := 0; ; n += each {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
		if err := w.write(ctx, d, n, each, next); err != nil && ctx.Err() == nil {
			return fmt.Errorf("write the steady load: %w", err)
		}
		if w.Written != nil {
			w.Written()
		}
		next = next.Add(w.Every)
	}
}

func (w Writer) write(ctx context.Context, d *table.Database, n, each int, due time.Time) error {
	stamp := strconv.FormatInt(due.UnixNano(), 10)
	payload := []byte(stamp + strings.Repeat(" ", max(0, w.Payload-len(stamp))))
	rows := make([]dialect.Row, each)
	for i := range rows {
		rows[i] = dialect.Row{MessageID: fmt.Sprintf("00000000-0000-7000-9000-%012d", n+i), Topic: Topic,
			Key: fmt.Sprintf("customer-%d", (n+i)%5000), Payload: payload}
	}
	table, err := dialect.ParseTable(dialect.DefaultTable)
	if err != nil {
		return err
	}
	for _, q := range d.Dialect.Insert(table, rows) {
		if _, err := d.DB.ExecContext(ctx, q.SQL, q.Args...); err != nil {
			return err
		}
	}
	return nil
}
