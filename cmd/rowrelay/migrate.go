package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// migrate holds the flags of the commands that create and update the tables.
type migrate struct {
	program
	target target
	claim  string
	notify string // on, off, or "" for no change
	inbox  bool
	json   bool

	notifies *bool // for the output: whether plain INSERTs notify relays; nil if the output doesn't report it
}

func (p program) migrateCommand() *cobra.Command {
	return group("migrate", "Create or update the tables, or print the SQL for it",
		p.migrateUpCommand(), p.migrateDownCommand(), p.migrateStatusCommand(), p.migratePrintCommand())
}

// command makes one of the group's commands. It calls the function run for each table
// that the flags select. With --config, these are the tables of all sources.
func (m *migrate) command(use, short, long string, run func(context.Context, config.Source) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			sources, err := m.sources(command)
			if err != nil {
				return err
			}
			for _, source := range sources {
				err := run(command.Context(), source)
				if m.inbox && errors.As(err, new(*storage.ForeignTable)) {
					return hinted(err, "give rowrelay's inbox another name with --table")
				}
				if err != nil {
					return explain(source, err)
				}
			}
			return nil
		},
	}
	m.target.addFlags(command)
	command.Flags().BoolVar(&m.inbox, "inbox", false, "work on the inbox table, with which a consumer recognises duplicates, instead of the outbox tables")
	return command
}

func (m *migrate) sources(command *cobra.Command) ([]config.Source, error) {
	if m.inbox { // a consumer's table, which isn't in a relay's configuration
		if m.target.config != "" || m.claim != "" || m.notify != "" {
			return nil, usagef("--inbox can't be given with --config, --claim or --notify: name the consumer's database with --database;" +
				" for an outbox and an inbox in one database, use migrate print with --for and --with-inbox")
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
		return nil, usagef("--source is required, because %s has several sources: %s", m.target.config, namesOf(sources))
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

// migrations returns the migrations of the source's outbox or, with --inbox, of the inbox.
func (m *migrate) migrations(db *sql.DB, d dialect.Dialect, source config.Source) (*migrations.Migrations, error) {
	if m.inbox {
		return migrations.NewInbox(db, d, source.Table)
	}
	return migrations.New(db, d, migrations.Options{Table: source.Table, Claim: string(source.Claim), Notify: m.notify})
}

// on opens the database and calls the function work with its migrations.
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

var migrateUpHelp = `Create the tables, or update tables of an older version. The command can safely be run
at any time, repeatedly, and by several processes concurrently. It creates a missing
database file.

--notify creates a trigger, on ` + databases.Notifying() + ` only. With it, a plain INSERT or a COPY
wakes listening relays when it commits; without it, relays find the messages with their
next poll (after at most 200 ms by default). The trigger takes some 30 µs of the
server's time per transaction (see docs/operating.md), and makes PREPARE TRANSACTION
fail.
--notify=false drops the trigger. Without the flag nothing changes.`

// notifyFlag adds --notify.
func (m *migrate) notifyFlag(command *cobra.Command) {
	command.Flags().BoolFunc("notify", "on "+databases.Notifying()+": create a trigger, so that plain INSERTs wake listening relays; --notify=false drops it (default no change)", func(text string) error {
		on, err := strconv.ParseBool(text)
		m.notify = map[bool]string{true: "on", false: "off"}[on]
		return err
	})
}

func (p program) migrateUpCommand() *cobra.Command {
	m := &migrate{program: p}
	command := m.command("up", "Create or update the tables", migrateUpHelp, func(ctx context.Context, source config.Source) error {
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
	command.Flags().StringVar(&m.claim, "claim", "", "how relays will claim messages, `lanes or rows`: rows needs more indexes (default lanes)")
	m.notifyFlag(command)
	jsonFlag(command, &m.json)
	return command
}

const migrateDownHelp = `Revert the last migration. Reverting the first one drops the tables, with all delivered
messages that are still kept. The command fails while a relay is alive or a table is
adopted (rowrelay adopt). It also fails if messages are undelivered, unless
--discard-messages is given, and if pauses, limits or entries in the log of actions exist,
unless --discard-controls is given. With --inbox the command checks none of these. A
consumer without its inbox table doesn't recognise duplicates.`

func (p program) migrateDownCommand() *cobra.Command {
	m := &migrate{program: p}
	var discard, discardRecords bool
	command := m.command("down", "Revert the last migration", migrateDownHelp, func(ctx context.Context, source config.Source) error {
		return m.on(ctx, source, false, func(steps *migrations.Migrations) error {
			if !m.inbox {
				if err := refuseAdopted(ctx, source); err != nil {
					return err
				}
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
			return m.report(source, "reverted", list, source.Table+" has no migration to revert; if the table "+source.Table+"_schema_version exists, it can be dropped")
		})
	})
	command.Flags().BoolVar(&discard, "discard-messages", false, "lose undelivered messages")
	command.Flags().BoolVar(&discardRecords, "discard-controls", false, "lose pauses, limits and the log of actions")
	jsonFlag(command, &m.json)
	return command
}

// refuseAdopted returns an error if other programs' tables are adopted. Without the outbox, their triggers would fail.
func refuseAdopted(ctx context.Context, source config.Source) (err error) {
	db, d, err := openDatabase(ctx, source.Database, pool{})
	if err != nil {
		return err
	}
	defer closing(db, &err)
	tables, err := adopt.Tables(ctx, db, d, source.Table)
	if err != nil || len(tables) == 0 {
		return err
	}
	return fmt.Errorf("INSERTs into %s, which the outbox has adopted, would fail: run rowrelay adopt --from %s --undo first", strings.Join(tables, ", "), tables[0])
}

// keepRecords returns an error if pauses, limits or the log of actions would be lost.
func keepRecords(ctx context.Context, steps *migrations.Migrations, discard bool) error {
	controls, actions, err := steps.Records(ctx)
	if err != nil || discard || controls+actions == 0 {
		return err
	}
	return fmt.Errorf("%d controls (pauses and limits) and %d entries of the log of actions would be lost: save the log with rowrelay actions --json, then give --discard-controls", controls, actions)
}

// refuseDown returns an error if the last migration must not be reverted. If another process has
// reverted a migration meanwhile, refuseDown tries again, or returns nil if that process has dropped
// the tables.
func refuseDown(ctx context.Context, source config.Source, steps *migrations.Migrations, discard bool) error {
	for tries := 1; ; tries++ {
		before, err := applied(ctx, steps)
		if err != nil || before == 0 {
			return err
		}
		refused := forbidden(ctx, source, discard)
		if errors.Is(refused, storage.ErrNoSchema) { // the tables have another version, so their status can't be read
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

// wouldLose returns an error if messages are undelivered.
func wouldLose(undelivered int64, err error) error {
	if err == nil && undelivered > 0 {
		err = fmt.Errorf("%d undelivered messages would be lost: deliver them first"+
			" (rowrelay run --drain), or give --discard-messages", undelivered)
	}
	return err
}

// errUncounted means that the status couldn't be read, for example because another process has dropped
// columns meanwhile.
var errUncounted = errors.New("count the messages: ")

// forbidden returns an error if the tables must stay, either because a relay is alive or because
// messages would be lost and discard is false.
func forbidden(ctx context.Context, source config.Source, discard bool) error {
	return withOperator(ctx, source, func(operator storage.Operator) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return fmt.Errorf("%w%w", errUncounted, err)
		}
		if !status.Has(storage.GaugeRelays) || !status.Has(storage.GaugeCounts) {
			return fmt.Errorf("the relays and messages of table %s could not be counted in time: try again when the database is less busy", source.Table)
		}
		var living []string
		for _, r := range status.Relays {
			if r.Alive {
				living = append(living, r.Name)
			}
		}
		switch {
		case len(living) > 0:
			return fmt.Errorf("relays of table %s are alive: stop them first (%s); a relay that died counts as alive until its lease ends",
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
	command := m.command("status", "List the migrations, and which are applied", "", func(ctx context.Context, source config.Source) error {
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

var migratePrintHelp = `Print the SQL of all migrations, for use with another migration tool. The command
doesn't connect to the database; it only needs the scheme of its URL, as in
  rowrelay migrate print --database ` + databases.URLs()[0].Dialect + `: > outbox.sql
Schemes are ` + databases.Schemes() + `.

--for prints a migration for another tool:
  ` + strings.Join(migrations.Tools(), ", ") + `
Such a migration contains no BEGIN or COMMIT, because the tools add their own. With
--dir the command writes it into the tool's folder of migrations, under the next number
or revision, and prints the names of the files:
  rowrelay migrate print --for alembic --database ` + databases.URLs()[0].Dialect + `: --dir migrations/versions
For golang-migrate, flyway and prisma the down migration is a second file; without
--dir, --down prints it. For the other tools one file has both up and down.

A release that changes the tables adds a migration. --after 1 prints the migrations
after version 1, to update tables that have version 1. It prints nothing if this release
has no later version. With --after, the indexes for claiming by rows are printed only if
--claim rows is given.`

// printFlags are the flags of migrate print.
type printFlags struct {
	tool, dir string
	options   migrations.FileOptions
	inboxToo  bool
	down      bool
}

func (p program) migratePrintCommand() *cobra.Command {
	m := &migrate{program: p, target: target{noServer: true}}
	flags := &printFlags{}
	command := m.command("print", "Print the SQL instead of running it", migratePrintHelp, func(_ context.Context, source config.Source) error {
		if flags.options.After != 0 && m.claim == "" { // the first migration created the indexes for the configured claim mode
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
		if flags.tool == "plain" {
			return m.printPlain(steps, flags)
		}
		return m.printFor(steps, source.Table, flags)
	})
	command.Flags().StringVar(&flags.tool, "for", "plain", "print a migration for this `tool`")
	command.Flags().StringVar(&flags.dir, "dir", "", "with --for: write the migration into this `folder`")
	command.Flags().BoolVar(&flags.down, "down", false, "with --for: print only the down migration, which deletes all messages")
	command.Flags().BoolVar(&flags.inboxToo, "with-inbox", false, "with --for: create a consumer's inbox table in the same migration")
	command.Flags().StringVar(&m.claim, "claim", "", "how relays will claim messages, `lanes or rows` (default lanes)")
	m.notifyFlag(command)
	command.Flags().Int64Var(&flags.options.After, "after", 0, "print only the migrations after this `version`, for tables that already have this version")
	return command
}

// printPlain prints the SQL of all steps.
func (m *migrate) printPlain(steps *migrations.Migrations, flags *printFlags) error {
	if flags.dir != "" || flags.down || flags.inboxToo {
		return usagef("--dir, --down and --with-inbox need --for, with the name of a tool")
	}
	var text strings.Builder
	if err := steps.PrintAfter(&text, flags.options.After); err != nil {
		return usagef("--after: %w", err)
	}
	_, err := io.WriteString(m.stdout, text.String())
	return err
}

// printFor prints a migration for another tool, or writes it into the tool's folder.
func (m *migrate) printFor(steps *migrations.Migrations, table string, flags *printFlags) error {
	if flags.inboxToo {
		flags.options.Inbox = "inbox"
		if schema, _, found := strings.Cut(table, "."); found {
			flags.options.Inbox = schema + ".inbox"
		}
	}
	if flags.dir != "" {
		if flags.down {
			return usagef("--down can't be given with --dir, which writes both the up and the down migration")
		}
		if _, err := os.Stat(flags.dir); err != nil {
			return usagef("--dir: %w: create the folder, or correct its name", err)
		}
		flags.options.Folder = os.DirFS(flags.dir)
	}
	files, err := steps.Files(flags.tool, flags.options)
	if err != nil {
		return usagef("--for: %w", err)
	}
	if flags.dir == "" {
		return m.printOne(files, flags)
	}
	for _, file := range files {
		name := filepath.Join(flags.dir, filepath.FromSlash(file.Name))
		if err := writeNew(name, file.Text); err != nil {
			return err
		}
		if err := m.print(name + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// printOne prints the file of the up migration or, with --down, of the down migration.
func (m *migrate) printOne(files []migrations.File, flags *printFlags) error {
	for _, file := range files {
		if file.Down == flags.down {
			_, err := io.WriteString(m.stdout, file.Text)
			return err
		}
	}
	if len(files) > 0 {
		return usagef("--down: a migration of %s has up and down in one file", flags.tool)
	}
	return nil
}

// writeNew writes a file that doesn't exist yet, and creates its folder.
func writeNew(name, text string) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return fmt.Errorf("create the folder of %s: %w", name, err)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.WriteString(text)
	return err
}

func (m *migrate) lookForTrigger(ctx context.Context, steps *migrations.Migrations) error {
	there, err := steps.Notifies(ctx)
	m.notifies = &there
	return err
}

// migrationJSON is the JSON form of a migration.
type migrationJSON struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// report prints the migrations or, if the list is empty, the text of the argument `otherwise`.
func (m *migrate) report(source config.Source, name string, list []migrations.Migration, otherwise string) error {
	if m.json {
		shown := []migrationJSON{}
		for _, each := range list {
			shown = append(shown, migrationJSON{each.Version, each.Name, each.Applied, each.AppliedAt.UTC()})
		}
		report := map[string]any{"table": source.Table, name: shown}
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
