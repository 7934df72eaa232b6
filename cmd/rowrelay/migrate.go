package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// migrate is the group of commands that make and update the tables.
type migrate struct {
	program
	target target
	claim  string
	notify string // on, off, or nothing
	inbox  bool
	json   bool

	notifies *bool // whether plain INSERTs tell relays; nil if nobody asked

}

func (p program) migrateCommand() *cobra.Command {
	return group("migrate", "Make or update the tables, or print the SQL that does",
		p.migrateUpCommand(), p.migrateDownCommand(), p.migrateStatusCommand(), p.migratePrintCommand())
}

// command makes one of the group's commands. It runs for each table that is
// meant: with a configuration, the tables of all its sources.
func (m *migrate) command(use, short, long string, run func(context.Context, config.Source) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			sources, err := m.sources(command)
			if err != nil {
				return err
			}
			for _, source := range sources {
				if err := run(command.Context(), source); err != nil {
					return explain(source, err)
				}
			}
			return nil
		},
	}
	m.target.addFlags(command)
	command.Flags().BoolVar(&m.inbox, "inbox", false, "the table by which consumers recognise what comes again, called inbox, instead of an outbox's")
	return command
}

func (m *migrate) sources(command *cobra.Command) ([]config.Source, error) {
	if m.inbox { // a consumer's table, which no configuration of relays names
		if m.target.config != "" || m.claim != "" || m.notify != "" {
			return nil, usagef("--inbox goes with neither --config, --claim nor --notify: name the consumer's database with --database")
		}
		if !command.Flags().Changed("table") {
			m.target.table = "inbox"
		}
	}
	sources, err := m.target.resolveAll(m.program, command)
	if err != nil {
		return nil, err
	}
	if len(sources) > 1 && command.Name() == "down" {
		return nil, usagef("name the source whose tables are to go with --source")
	}
	for i := range sources {
		if m.claim != "" {
			err = sources[i].Set("claim", m.claim)
		}
		if err != nil {
			return nil, usagef("--claim: %w", err)
		}
	}
	return sources, nil
}

// migrations are those of the source's outbox, or of the inbox in its place.
func (m *migrate) migrations(db *sql.DB, d dialect.Dialect, source config.Source) (*migrations.Migrations, error) {
	if m.inbox {
		return migrations.NewInbox(db, d, source.Table)
	}
	return migrations.New(db, d, migrations.Options{Table: source.Table, Claim: string(source.Claim), Notify: m.notify})
}

// on opens the database and calls work with its migrations.
func (m *migrate) on(ctx context.Context, source config.Source, create bool, work func(*migrations.Migrations) error) (err error) {
	db, d, err := openDatabase(ctx, source.Database, pool{create: create})
	if err != nil {
		return err
	}
	defer closing(db, &err)
	steps, err := m.migrations(db, d, source)
	if err != nil {
		return usage(err)
	}
	return work(steps)
}

var migrateUpHelp = `Make the tables, or bring those of an older version up to date. It is safe to
run at any time, several times, and by several processes at once.

A database file that doesn't exist is created.

--notify makes a trigger, on ` + databases.Notifying() + ` only, by which a plain INSERT or a COPY
wakes listening relays as it commits, instead of waiting for their next look (5 to
200 ms). A transaction pays some 30 µs of the server's time for it (see
docs/operating.md). PREPARE TRANSACTION fails with it. --notify=false drops it;
without the flag it stays as it is.`

// notifyFlag adds --notify.
func (m *migrate) notifyFlag(command *cobra.Command) {
	command.Flags().BoolFunc("notify", "on "+databases.Notifying()+": plain INSERTs wake listening relays, by a trigger; --notify=false drops it (default as it is)", func(text string) error {
		on, err := strconv.ParseBool(text)
		m.notify = map[bool]string{true: "on", false: "off"}[on]
		return err
	})
}

func (p program) migrateUpCommand() *cobra.Command {
	m := &migrate{program: p}
	command := m.command("up", "Make or update the tables", migrateUpHelp, func(ctx context.Context, source config.Source) error {
		return m.on(ctx, source, true, func(steps *migrations.Migrations) error {
			applied, err := steps.Up(ctx)
			if err == nil && m.notify != "" {
				err = m.lookForTrigger(ctx, steps)
			}
			if err != nil {
				return err
			}
			return m.report(source, "applied", applied, "the tables of "+source.Table+" are up to date")
		})
	})
	command.Flags().StringVar(&m.claim, "claim", "", "how the table is going to be claimed, `lanes or rows`: rows needs more indexes (default lanes)")
	m.notifyFlag(command)
	jsonFlag(command, &m.json)
	return command
}

const migrateDownHelp = `Take the last migration back. Taking back the first one drops the tables, so
that is refused while there are messages that were not delivered, unless
--discard-messages is given. It is also refused while there are controls in force,
or entries in the log of actions, unless --discard-controls is given. Delivered messages
that are still kept are dropped. With --inbox nothing is refused: without its table
a consumer recognises no message that comes again.`

func (p program) migrateDownCommand() *cobra.Command {
	m := &migrate{program: p}
	var discard, discardRecords bool
	command := m.command("down", "Take the last migration back", migrateDownHelp, func(ctx context.Context, source config.Source) error {
		return m.on(ctx, source, false, func(steps *migrations.Migrations) error {
			if !m.inbox {
				if err := refuseDown(ctx, source, steps, discard); err != nil {
					return err
				}
				if err := keepRecords(ctx, steps, discardRecords); err != nil {
					return err
				}
			}
			taken, err := steps.Down(ctx)
			if err != nil {
				return err
			}
			var list []migrations.Migration
			if taken != nil {
				list = append(list, *taken)
			}
			return m.report(source, "taken back", list, "there was no migration of "+source.Table+" to take back")
		})
	})
	command.Flags().BoolVar(&discard, "discard-messages", false, "also with undelivered messages, which are then lost")
	command.Flags().BoolVar(&discardRecords, "discard-controls", false, "also with controls and the log of actions, which are then lost")
	jsonFlag(command, &m.json)
	return command
}

// keepRecords refuses to drop what operators have put in force, and the log of what they did.
func keepRecords(ctx context.Context, steps *migrations.Migrations, discard bool) error {
	controls, actions, err := steps.Records(ctx)
	if err != nil || discard || controls+actions == 0 {
		return err
	}
	return fmt.Errorf("%d controls (pauses and limits) and %d entries of the log of actions would be lost: save them (rowrelay actions --json), then give --discard-controls", controls, actions)
}

// refuseDown finds what forbids to take a step back. Where another process was quicker, it looks
// again; where that one has dropped the tables, there is nothing to forbid.
func refuseDown(ctx context.Context, source config.Source, steps *migrations.Migrations, discard bool) error {
	for tries := 1; ; tries++ {
		before, err := applied(ctx, steps)
		if err != nil || before == 0 {
			return err
		}
		refused := forbidden(ctx, source, discard)
		if errors.Is(refused, storage.ErrNoSchema) { // the tables are of another version, whose status isn't known
			refused = nil
			if !discard {
				refused = wouldLose(steps.Undelivered(ctx))
			}
		}
		if refused == nil {
			return nil
		}
		after, err := applied(ctx, steps)
		if err == nil && after == 0 {
			return nil
		}
		if quicker := errors.Is(refused, storage.ErrBusy) || errors.Is(refused, errUncounted) || after != before; tries == 5 || !quicker {
			return refused
		}
	}
}

func applied(ctx context.Context, steps *migrations.Migrations) (n int, err error) {
	all, err := steps.Status(ctx)
	for _, each := range all {
		if each.Applied {
			n++
		}
	}
	return n, err
}

// wouldLose refuses to lose messages.
func wouldLose(undelivered int64, err error) error {
	if err == nil && undelivered > 0 {
		err = fmt.Errorf("%d messages were not delivered, and would be lost: deliver them first"+
			" (rowrelay run --drain), or give --discard-messages", undelivered)
	}
	return err
}

// errUncounted begins an error of the status, as where another process takes columns away meanwhile.
var errUncounted = errors.New("count the messages: ")

// forbidden is why the tables must stay: relays work on them, or, unless that
// is meant, messages would be lost.
func forbidden(ctx context.Context, source config.Source, discard bool) error {
	return withOperator(ctx, source, func(operator storage.Operator) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return fmt.Errorf("%w%w", errUncounted, err)
		}
		if !status.Has(storage.GaugeRelays) || !status.Has(storage.GaugeCounts) {
			return fmt.Errorf("the relays and messages of table %s could not be counted in time: try again when the database has less to do", source.Table)
		}
		var living []string
		for _, r := range status.Relays {
			if r.Alive {
				living = append(living, r.Name)
			}
		}
		switch {
		case len(living) > 0:
			return fmt.Errorf("relays work on table %s: stop them first (%s); one that died counts until its lease has ended",
				source.Table, strings.Join(living, ", "))
		case discard:
			return nil
		}
		return wouldLose(undelivered(status), nil)
	})
}

// undelivered counts the messages in any state but done.
func undelivered(status storage.Status) (left int64) {
	for state, count := range status.Counts {
		if state != storage.StateDone {
			left += count
		}
	}
	return left
}

func (p program) migrateStatusCommand() *cobra.Command {
	m := &migrate{program: p}
	command := m.command("status", "List the migrations, applied or not", "", func(ctx context.Context, source config.Source) error {
		return m.on(ctx, source, false, func(steps *migrations.Migrations) error {
			all, err := steps.Status(ctx)
			if err == nil && !m.inbox && !source.Database.Polled() {
				err = m.lookForTrigger(ctx, steps)
			}
			if err != nil {
				return err
			}
			return m.report(source, "migrations", all, "")
		})
	})
	jsonFlag(command, &m.json)
	return command
}

var migratePrintHelp = `Print the SQL of all migrations, for those who run migrations their own way. It
doesn't connect: of --database only the beginning matters, as in
  rowrelay migrate print --database ` + databases.URLs()[0].Dialect + `: > outbox.sql
It is ` + databases.Schemes() + `.

A release that changes the tables brings a step more. --after 1 prints what came after
step 1, as a migration of your own for tables that have it; nothing if nothing did.
With it, the indexes of --claim rows are printed only where --claim is given.`

func (p program) migratePrintCommand() *cobra.Command {
	m := &migrate{program: p, target: target{noServer: true}}
	var after int64
	command := m.command("print", "Print the SQL instead of running it", migratePrintHelp, func(_ context.Context, source config.Source) error {
		if after != 0 && m.claim == "" { // the indexes that the configuration asks for came with the first step
			source.Claim = ""
		}
		d, err := dialect.ByName(source.Database.Kind())
		if err != nil {
			return usage(err)
		}
		steps, err := m.migrations(nil, d, source)
		if err != nil {
			return usage(err)
		}
		var text strings.Builder
		if err := steps.PrintAfter(&text, after); err != nil {
			return usagef("--after: %w", err)
		}
		_, err = io.WriteString(p.stdout, text.String())
		return err
	})
	command.Flags().StringVar(&m.claim, "claim", "", "how the table is going to be claimed, `lanes or rows` (default lanes)")
	m.notifyFlag(command)
	command.Flags().Int64Var(&after, "after", 0, "only the steps after this `version`, for tables that have it")
	return command
}

func (m *migrate) lookForTrigger(ctx context.Context, steps *migrations.Migrations) error {
	there, err := steps.Notifies(ctx)
	m.notifies = &there
	return err
}

// migrationJSON is a migration as JSON.
type migrationJSON struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// report prints migrations, or the text if there is none.
func (m *migrate) report(source config.Source, name string, list []migrations.Migration, otherwise string) error {
	if m.json {
		shown := []migrationJSON{}
		for _, each := range list {
			shown = append(shown, migrationJSON{each.Version, each.Name, each.Applied, each.AppliedAt.UTC()})
		}
		report := map[string]any{"table": source.Table, strings.ReplaceAll(name, " ", "_"): shown}
		if m.notifies != nil {
			report["notify"] = *m.notifies
		}
		return m.printJSON(report)
	}
	if len(list) == 0 {
		if err := m.print(otherwise + "\n"); err != nil || m.notifies == nil {
			return err
		}
	}
	var rows [][]string
	for _, each := range list {
		state := name
		if name == "migrations" {
			state = map[bool]string{true: "applied", false: "pending"}[each.Applied]
		}
		rows = append(rows, []string{source.Table, fmt.Sprint(each.Version), each.Name, state})
	}
	if m.notifies != nil {
		rows = append(rows, []string{source.Table, "", "plain INSERTs notify", map[bool]string{true: "on", false: "off"}[*m.notifies]})
	}
	return m.printTable(rows)
}
