package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const enqueueHelp = `Write messages to the table, one from each line of the input. A line is a JSON
object with these members, of which only topic is required:

  topic           the route that the message takes
  key             what it is ordered by
  payload         a string is taken as text, anything else as its JSON
  payload_base64  a binary payload, instead of payload
  headers         an object of strings
  available_at    not before this time, such as 2026-01-31T12:00:00Z
  priority        a whole number
  message_id      a UUID; one is made where there is none

Messages are written in batches, each in one transaction and after all of it was
checked. At the first line that is wrong the command ends with its number:
nothing of its batch is written, what came before has been.`

// enqueue is the command's state.
type enqueue struct {
	program
	target     target
	batch      int
	maxPayload string
	json       bool

	writer  *outbox.Writer
	db      *sql.DB
	written int
}

// maxBatchBytes bounds the memory that a batch takes up, and what a database
// is given in one transaction.
const maxBatchBytes = 16 << 20

func (p program) enqueueCommand() *cobra.Command {
	e := &enqueue{program: p}
	command := &cobra.Command{
		Use:   "enqueue",
		Short: "Write messages from JSON lines on stdin",
		Long:  enqueueHelp,
		Args:  noArguments,
		RunE:  e.run,
	}
	e.target.addFlags(command)
	command.Flags().IntVar(&e.batch, "batch", 500, "write at most `n` messages, or 16 MiB, in one transaction")
	command.Flags().StringVar(&e.maxPayload, "max-payload", "1MiB", "refuse payloads above this `size`")
	jsonFlag(command, &e.json)
	return command
}

func (e *enqueue) run(command *cobra.Command, _ []string) (err error) {
	source, err := e.target.resolve(e.program, command)
	if err != nil {
		return err
	}
	if e.batch < 1 || e.batch > 10_000 {
		return usagef("--batch: %d isn't between 1 and 10000", e.batch)
	}
	limit, err := config.ParseSize(e.maxPayload, 1, 256<<20)
	if err != nil {
		return usagef("--max-payload: %q %w", e.maxPayload, err)
	}
	db, d, err := openDatabase(command.Context(), source.Database, false)
	if err != nil {
		return err
	}
	defer closing(db, &err)
	if err := e.prepare(db, d, source, limit); err != nil {
		return err
	}
	lines := newLines(e.stdin, limit)
	if err := e.writeAll(command.Context(), lines); err != nil {
		return fmt.Errorf("%w\n  nothing of its batch was written; %s before it", explain(source, err), e.count("was written", "were written"))
	}
	return e.report()
}

func (e *enqueue) prepare(db *sql.DB, d dialect.Dialect, source config.Source, limit int) (err error) {
	e.db = db
	e.writer, err = outbox.NewWriter(d, outbox.Options{Table: source.Table, MaxPayload: limit, Notify: source.Database.Kind() == config.Postgres})
	return err
}

func (e *enqueue) count(one, more string) string {
	if e.written == 1 {
		return "1 message " + one
	}
	return fmt.Sprintf("%d messages %s", e.written, more)
}

func (e *enqueue) report() error {
	if e.json {
		return e.printJSON(map[string]int{"written": e.written})
	}
	return e.print(e.count("written", "written") + "\n")
}

// batch is what goes into one transaction.
type batch struct {
	messages []outbox.Message
	numbers  []int // of their lines
	bytes    int
}

func (b *batch) add(m outbox.Message, number int) {
	b.messages = append(b.messages, m)
	b.numbers = append(b.numbers, number)
	b.bytes += len(m.Payload)
}

// writeAll writes the input's messages batch by batch.
func (e *enqueue) writeAll(ctx context.Context, lines *lines) error {
	for {
		next, err := e.read(ctx, lines)
		if err != nil {
			return err
		}
		if len(next.messages) == 0 {
			return nil
		}
		if err := e.write(ctx, next); err != nil {
			return err
		}
		e.written += len(next.messages)
	}
}

func (e *enqueue) read(ctx context.Context, lines *lines) (batch, error) {
	var next batch
	for len(next.messages) < e.batch && next.bytes < maxBatchBytes {
		line, ok, err := lines.next()
		if err != nil {
			return next, err
		}
		if err := ctx.Err(); err != nil || !ok {
			return next, err
		}
		message, err := parseLine(line)
		if err != nil {
			return next, fmt.Errorf("line %d %w", lines.number, err)
		}
		next.add(message, lines.number)
	}
	return next, nil
}

// write writes a batch in a transaction. The Writer checks all of it first.
func (e *enqueue) write(ctx context.Context, b batch) error {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction for lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	if err := e.writer.Write(ctx, tx, b.messages...); err != nil {
		return errors.Join(b.located(err), rolledBack(tx))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	return nil
}

func rolledBack(tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// located tells the line of a message that breaks a rule, in the words of the
// line.
func (b batch) located(err error) error {
	var broken *outbox.ValidationError
	if !errors.As(err, &broken) {
		return fmt.Errorf("write lines %d to %d: %w", b.numbers[0], b.numbers[len(b.numbers)-1], err)
	}
	name := map[string]string{
		"ID": "message_id", "Topic": "topic", "Key": "key", "Payload": "payload", "Headers": "headers", "AvailableAt": "available_at",
	}[broken.Field]
	return fmt.Errorf("line %d: %s %s", b.numbers[broken.Index], name, broken.Rule)
}
