package main

import (
	"database/sql"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/sinks/settings"
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
	size, err := settings.Field{Type: settings.TypeSize, Min: "1B", Max: "256MiB"}.Parse(e.maxPayload)
	if err != nil {
		return usagef("--max-payload: %q %w", e.maxPayload, err)
	}
	limit := int(size.(int64))
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
