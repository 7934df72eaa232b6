package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/outbox"
)

// producerCase is a way to write messages.
type producerCase struct {
	server    table.Server
	native    bool // uses pgx without database/sql
	messages  int  // messages per transaction
	producers int  // concurrent producers
	how       string
	options   outbox.Options
	trigger   bool // compares bare INSERTs with and without the notifying trigger
}

func (c producerCase) String() string {
	text := c.server.Name
	if c.native {
		text += ", through pgx"
	}
	text += fmt.Sprintf(", %d per transaction", c.messages)
	if c.producers > 1 {
		text += fmt.Sprintf(", %d producers", c.producers)
	}
	return text + c.how
}

// producer compares a call of Write with an INSERT of the same columns. Both run in transactions,
// with ids that are created in the same way. It also compares an INSERT that notifies through the
// trigger with an INSERT that doesn't notify.
func producer(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, c := range only(producerCases(s), s) {
		first := ", Write"
		if c.trigger {
			first = ", with the trigger"
		}
		values, err := figure.Turns(ctx, s.rounds,
			figure.Contender{Name: c.String() + first, Turn: c.turn(true)},
			figure.Contender{Name: c.String() + ", INSERT", Turn: c.turn(false)})
		if err != nil {
			return err
		}
		f := figure.Figure{What: c.String(), Value: figure.Spread(values[0], "µs"), Ratio: figure.Ratio(values[0], values[1]),
			Reference: "the bare INSERT's " + figure.Spread(values[1], "µs")}
		if c.how == "" {
			f.Goal, f.Met = "≤ 1.10", f.Ratio <= 1.1
		}
		report(f)
	}
	return nil
}

func producerCases(s settings) (cases []producerCase) {
	for _, server := range s.up("postgres15", "postgres18", "mysql", "mariadb1011", "sqlite") {
		postgres := server.Dialect.Name() == "postgres"
		for _, messages := range []int{1, 10, 1000} {
			cases = append(cases, producerCase{server: server, messages: messages, producers: 1})
			if postgres {
				cases = append(cases, producerCase{server: server, native: true, messages: messages, producers: 1})
			}
		}
		if server.Dialect.Name() != "sqlite" { // SQLite has one writer at a time
			cases = append(cases, producerCase{server: server, messages: 1, producers: 8})
		}
		if !postgres {
			continue
		}
		for _, producers := range []int{1, 8} {
			cases = append(cases,
				producerCase{server: server, messages: 1, producers: producers, how: ", NOTIFY each", options: outbox.Options{Notify: true}},
				producerCase{server: server, messages: 1, producers: producers, how: ", NOTIFY ≤ 1 per ms", options: outbox.Options{Notify: true, NotifyInterval: time.Millisecond}},
				producerCase{server: server, messages: 1, producers: producers, how: ", key locks", options: outbox.Options{KeyLocks: true}},
				producerCase{server: server, messages: 1, producers: producers, how: ", plain INSERTs that notify by the trigger", trigger: true})
		}
	}
	return cases
}

// producing is how long a turn writes transactions.
const producing = 700 * time.Millisecond

// turn returns a function that measures the time of a transaction in microseconds. With several
// producers this is the mean time from the end of one transaction to the end of the next.
func (c producerCase) turn(first bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		d, err := c.server.Create(ctx)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		if err := d.Migrate(ctx); err != nil {
			return 0, err
		}
		if c.trigger {
			if first {
				err = d.NotifyByTrigger(ctx)
			}
			if listener, listenErr := pgx.Connect(ctx, d.URL); listenErr == nil { // so that notifications have a receiver, as in production
				defer listener.Close(ctx)
				_, listenErr = listener.Exec(ctx, "LISTEN rowrelay_outbox")
				err = errors.Join(err, listenErr)
			}
			if err != nil {
				return 0, err
			}
		}
		write, end, err := c.writing(ctx, d, first && !c.trigger)
		if err != nil {
			return 0, err
		}
		defer end()
		for n := range 10 * c.producers { // statements are prepared and connections are opened before the measurement
			if err := write(ctx, n); err != nil {
				return 0, err
			}
		}
		return c.timed(ctx, write)
	}
}

func (c producerCase) timed(ctx context.Context, write func(context.Context, int) error) (float64, error) {
	counts, errs := make([]int, c.producers), make([]error, c.producers)
	began := time.Now()
	var producers sync.WaitGroup
	for p := range c.producers {
		producers.Go(func() {
			for ; time.Since(began) < producing && errs[p] == nil; counts[p]++ {
				errs[p] = write(ctx, p*1000+counts[p]%1000)
			}
		})
	}
	producers.Wait()
	took, count := time.Since(began), 0
	for p := range c.producers {
		if errs[p] != nil {
			return 0, errs[p]
		}
		count += counts[p]
	}
	return float64(took.Microseconds()) / float64(count), nil
}

// content is the payload of all messages. Consecutive messages have different keys.
var content = bytes.Repeat([]byte("x"), 256)

func (c producerCase) made(n int) []outbox.Message {
	messages := make([]outbox.Message, c.messages)
	for i := range messages {
		messages[i] = outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: fmt.Sprintf("customer-%d", n+i), Payload: content}
	}
	return messages
}

// writing returns a function that writes one transaction.
func (c producerCase) writing(ctx context.Context, d *table.Database, byWriter bool) (write func(context.Context, int) error, end func(), err error) {
	if c.native {
		return c.writingNatively(ctx, d, byWriter)
	}
	d.DB.SetMaxOpenConns(c.producers)
	d.DB.SetMaxIdleConns(c.producers)
	writer, err := outbox.NewWriter(d.Dialect, c.options)
	bare := c.bareInsert()
	return func(ctx context.Context, n int) error {
		messages := c.made(n)
		tx, err := d.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if byWriter {
			err = writer.Write(ctx, tx, messages...)
		} else {
			err = insertBare(ctx, tx, bare, messages)
		}
		if err != nil {
			return err
		}
		return tx.Commit()
	}, func() {}, err
}

func (c producerCase) writingNatively(ctx context.Context, d *table.Database, byWriter bool) (write func(context.Context, int) error, end func(), err error) {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return nil, nil, err
	}
	writer, err := outbox.NewWriter(d.Dialect, c.options)
	bare := c.bareInsert()
	return func(ctx context.Context, n int) error {
		messages := c.made(n)
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if byWriter {
				return writer.Write(ctx, outbox.Pgx(tx), messages...)
			}
			_, err := tx.Exec(ctx, bare, bareArguments(messages)...)
			return err
		})
	}, pool.Close, err
}

func insertBare(ctx context.Context, tx *sql.Tx, bare string, messages []outbox.Message) error {
	_, err := tx.ExecContext(ctx, bare, bareArguments(messages)...)
	return err
}

// bareInsert returns the text of the handwritten INSERT, which writes all rows of a transaction. It
// is called once, before the first write.
func (c producerCase) bareInsert() string {
	rows := make([]string, c.messages)
	for i := range rows {
		rows[i] = "(?, ?, ?, ?)"
		if n := 4 * i; c.server.Dialect.Name() == "postgres" {
			rows[i] = fmt.Sprintf("($%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4)
		}
	}
	return "INSERT INTO outbox (message_id, topic, message_key, payload) VALUES " + strings.Join(rows, ", ")
}

func bareArguments(messages []outbox.Message) []any {
	args := make([]any, 0, 4*len(messages))
	for i := range messages {
		m := &messages[i]
		args = append(args, m.ID, m.Topic, m.Key, m.Payload)
	}
	return args
}
