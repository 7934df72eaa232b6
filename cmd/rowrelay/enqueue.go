package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

const enqueueHelp = `Write messages to the table, one for each line of stdin. A line is a JSON object with
these members, of which only topic is required:

  topic           selects the sinks, through the routes of the configuration
  key             messages of the same key are delivered in order
  payload         a string is stored as text, any other value as its JSON
  payload_base64  a binary payload, instead of payload
  headers         an object of strings
  available_at    the message isn't sent before this time, such as 2026-01-31T12:00:00Z
  expires_at      the message isn't sent from this time on
  priority        a whole number
  message_id      a UUID (default a new one)

Messages are written in batches. The command checks all lines of a batch, and then
writes it in one transaction. At the first invalid line it prints the line's number and
exits. Nothing of that line's batch is written, but all earlier batches are.`

// enqueue holds the flags and the state of the command.
type enqueue struct {
	program
	target     target
	batch      int
	maxPayload string
	expiresAt  string
	expireIn   string
	json       bool

	expires time.Time // the expires_at of messages whose line has none; zero: they don't expire

	writer  *outbox.Writer
	db      *sql.DB
	dialect dialect.Dialect
	written int
	line    int // the number of the last line that was written
}

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
	command.Flags().StringVar(&e.expiresAt, "expires-at", "", "expires_at for lines without one: a `time` such as 2026-01-31T12:00:00Z")
	command.Flags().StringVar(&e.expireIn, "expire-after", "", "expires_at for lines without one: a `duration` from now, such as 90m or 2d")
	jsonFlag(command, &e.json)
	return command
}

func (e *enqueue) run(command *cobra.Command, _ []string) (err error) {
	ctx := command.Context()
	source, err := e.target.resolve(e.program, command)
	if err != nil {
		return err
	}
	if e.batch < 1 || e.batch > 10_000 {
		return usagef("--batch: %d isn't between 1 and 10000", e.batch)
	}
	size, err := settings.Field{Type: settings.TypeSize, Min: "1B", Max: "256MiB"}.Parse(e.maxPayload)
	if err != nil {
		return usagef("--max-payload: %q %w", e.maxPayload, err)
	}
	limit := int(size.(int64))
	if err := e.readExpiry(); err != nil {
		return err
	}
	db, d, err := openDatabase(ctx, source.Database, pool{})
	if err != nil {
		return err
	}
	defer closing(db, &err)
	e.db, e.dialect = db, d
	e.writer, err = outbox.NewWriter(d, outbox.Options{Table: source.Table, MaxPayload: limit, Notify: !source.Database.Polled()})
	if err != nil {
		return err
	}
	progress := newProgress(e.stderr)
	err = e.writeAll(ctx, newLines(interruptible(ctx, e.stdin), limit), progress)
	progress.end()
	if err != nil && ctx.Err() != nil {
		return stopped{fmt.Sprintf("%s, up to line %d of the input; to continue, enqueue the lines after it", e.count("was written", "were written"), e.line)}
	}
	if err != nil {
		return fmt.Errorf("%w\n  no line of this batch was written; %s before it", explain(source, err), e.count("was written", "were written"))
	}
	if e.json {
		return e.printJSON(map[string]int{"written": e.written})
	}
	return e.print(e.count("written", "written") + "\n")
}

// readExpiry reads --expires-at or --expire-after.
func (e *enqueue) readExpiry() (err error) {
	switch {
	case e.expiresAt != "" && e.expireIn != "":
		return usagef("--expires-at and --expire-after can't be given together")
	case e.expiresAt != "":
		if e.expires, err = time.Parse(time.RFC3339Nano, e.expiresAt); err != nil {
			return usagef("--expires-at: %q isn't a time such as 2026-01-31T12:00:00Z", e.expiresAt)
		}
	case e.expireIn != "":
		after, err := settings.Field{Type: settings.TypeDuration, Min: "1ms", Max: "36500d"}.Parse(e.expireIn)
		if err != nil {
			return usagef("--expire-after: %q %w", e.expireIn, err)
		}
		e.expires = time.Now().Add(after.(time.Duration))
	}
	return nil
}

func (e *enqueue) count(one, more string) string {
	if e.written == 1 {
		return "1 message " + one
	}
	return fmt.Sprintf("%d messages %s", e.written, more)
}

// interruptible returns a reader whose reads end when the context ends. A plain read from a terminal or a pipe doesn't
// end when the context ends.
func interruptible(ctx context.Context, from io.Reader) io.Reader {
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = reader.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(writer, from)
		_ = writer.CloseWithError(err)
	}()
	return reader
}

// maxBatchBytes limits the total size of a batch's payloads. This also limits the memory
// that the batch takes and the size of its transaction.
const maxBatchBytes = 16 << 20

// writeAll writes the input's messages batch by batch.
func (e *enqueue) writeAll(ctx context.Context, lines *lines, progress *progress) error {
	for {
		var batch []outbox.Message
		var numbers []int // the batch's line numbers
		for bytes := 0; len(batch) < e.batch && bytes < maxBatchBytes; {
			line, ok, err := lines.next()
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if !ok {
				break
			}
			message, err := parseLine(line)
			if err != nil {
				return fmt.Errorf("line %d %w", lines.number, err)
			}
			if message.ExpiresAt.IsZero() {
				message.ExpiresAt = e.expires
			}
			batch, numbers = append(batch, message), append(numbers, lines.number)
			bytes += len(message.Payload)
		}
		if len(batch) == 0 {
			return nil
		}
		if err := e.write(ctx, batch, numbers); err != nil {
			return err
		}
		e.written, e.line = e.written+len(batch), numbers[len(numbers)-1]
		progress.update(e.written, 0, func(rate float64) string {
			return fmt.Sprintf("%s, %.0f/s", e.count("written", "written"), rate)
		})
	}
}

// writeTries is the number of attempts to write a batch if the server is read-only. Each attempt uses new connections,
// because shortly after a failover the host name may still resolve to the old primary.
const writeTries = 4

func (e *enqueue) write(ctx context.Context, batch []outbox.Message, numbers []int) (err error) {
	for range writeTries {
		if err = e.writeOnce(ctx, batch, numbers); !e.dialect.ReadOnly(err) {
			return err
		}
		dialect.Redial(ctx, e.db)
	}
	return err
}

// writeOnce writes a batch in a transaction. The Writer checks all messages first. The
// error for an invalid message has the number of its line and the name of its member.
func (e *enqueue) writeOnce(ctx context.Context, batch []outbox.Message, numbers []int) error {
	first, last := numbers[0], numbers[len(numbers)-1]
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction for lines %d to %d: %w", first, last, err)
	}
	if err := e.writer.Write(ctx, tx, batch...); err != nil {
		var broken *outbox.ValidationError
		if errors.As(err, &broken) {
			member := map[string]string{
				"ID": "message_id", "Topic": "topic", "Key": "key", "Payload": "payload", "Headers": "headers", "AvailableAt": "available_at", "ExpiresAt": "expires_at",
			}[broken.Field]
			err = fmt.Errorf("line %d: %s %s", numbers[broken.Index], member, broken.Rule)
		} else {
			for errors.Unwrap(err) != nil { // remove the texts that the Writer puts before the cause, because they are meant for Go programs
				err = errors.Unwrap(err)
			}
			err = fmt.Errorf("write lines %d to %d: %w", first, last, err)
		}
		if failed := tx.Rollback(); !errors.Is(failed, sql.ErrTxDone) {
			err = errors.Join(err, failed)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit lines %d to %d: %w", first, last, err)
	}
	return nil
}
