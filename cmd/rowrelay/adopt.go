package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const adoptHelp = `Forward the rows of an outbox table of your own into rowrelay's outbox. The programs that
write to your table are not changed and need no further rights. The command works on
PostgreSQL, MySQL, MariaDB and SQLite.

Stop the loop or connector that sends the rows today, then:

  rowrelay adopt --from events --plan     # shows the mapping, costs, locks, rights and SQL
  rowrelay adopt --from events            # asks, forwards the waiting rows, creates a trigger
  rowrelay adopt --from events --status   # what is left in the table
  rowrelay adopt --from events --undo     # stops forwarding, and removes the trigger

The mapping is proposed from the names and types of the columns. Each flag of the mapping
takes a column or an expression in the database's SQL, such as
--topic "concat('orders.', kind)". On PostgreSQL, write the schema before a function of
your own.

The waiting rows are forwarded first, in batches, while programs continue to write. Then the
command locks the table, forwards the last waiting rows, and creates the trigger. So each row
is forwarded once, and the rows of each key in the order that --plan shows. --plan also warns
if waiting rows may have been inserted in another order. While the command waits
for the lock, programs can't write. So each attempt to get the lock ends after half a second
(one second on MySQL and MariaDB). If the command is interrupted, run it again.

A row that the outbox would refuse, for example because its key has more than 255 bytes,
is forwarded as a parked message with the reason, so the program's INSERT doesn't fail.
With --refuse the INSERT fails.

--view, on PostgreSQL only, renames the table and puts a view in its place. New rows are then
written to the outbox only, which costs less than the trigger. --plan lists the statements
that fail on a view.`

// adoption holds the flags of the command.
type adoption struct {
	program
	target  target
	from    string
	mapping adopt.Mapping
	headers []string

	view                      bool
	plan, print, status, undo bool
	yes                       bool
}

func (p program) adoptCommand() *cobra.Command {
	a := &adoption{program: p}
	command := &cobra.Command{
		Use: "adopt --from TABLE", Short: "Forward the rows of an outbox table of your own", Long: adoptHelp, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if a.plan && a.undo {
				return usagef("--plan also shows the SQL of --undo: leave out --undo, or use --undo --print")
			}
			if a.from == "" {
				return usagef("--from is required: name the table to adopt")
			}
			source, err := a.target.resolve(a.program, command)
			if err != nil {
				return err
			}
			return explainInAdopt(source, a.run(command, source))
		},
	}
	a.target.addFlags(command)
	flags := command.Flags()
	flags.StringVar(&a.from, "from", "", "the `table` to adopt, or schema.table, as the database spells it")
	flags.BoolVar(&a.plan, "plan", false, "show what would be done, and change nothing")
	flags.BoolVar(&a.print, "print", false, "print only the SQL, and change nothing; with --undo, the SQL that --undo runs")
	flags.BoolVar(&a.status, "status", false, "show what is left in the table")
	flags.BoolVar(&a.undo, "undo", false, "remove the trigger, or remove the view and give the table its name back")
	flags.BoolVar(&a.yes, "yes", false, "don't ask")
	flags.BoolVar(&a.view, "view", false, "PostgreSQL: put a view in the table's place, instead of a trigger")
	flags.BoolVar(&a.mapping.Refuse, "refuse", false, "let a program's INSERT fail if the outbox refuses the message")
	flags.StringVar(&a.mapping.Topic, "topic", "", "the topic, an `expression`")
	flags.StringVar(&a.mapping.Key, "key", "", "the key, an `expression`")
	flags.StringVar(&a.mapping.Payload, "payload", "", "the payload, an `expression`")
	flags.StringVar(&a.mapping.ID, "id", "", "the message's id, an `expression` whose value is a UUID")
	flags.StringVar(&a.mapping.Headers, "headers", "", "an `expression` whose value is a JSON object with all headers")
	flags.StringArrayVar(&a.headers, "header", nil, "a header, as `name=expression`; can be repeated")
	flags.StringVar(&a.mapping.Waiting, "waiting", "", "the `condition` of rows that are not sent yet; false: forward only new rows")
	flags.StringVar(&a.mapping.Order, "order", "", "the order of the waiting rows, `expressions`")
	flags.StringArrayVar(&a.mapping.Published, "published", nil, "how to mark sent rows: `column=expression` (can be repeated), delete to delete them, or none")
	command.MarkFlagsMutuallyExclusive("plan", "print", "status")
	command.MarkFlagsMutuallyExclusive("status", "undo")
	return command
}

// explainInAdopt is like explain, but if a right is missing, its hint is about the rights that adopt needs.
func explainInAdopt(source config.Source, err error) error {
	if d, unknown := dialect.ByName(source.Database.Kind()); err != nil && unknown == nil && d.Denied(err) {
		return hinted(err, "grant the missing rights to the database's user, or use another user: docs/moving.md lists the rights that adopt needs")
	}
	return explain(source, err)
}

func (a *adoption) run(command *cobra.Command, source config.Source) (err error) {
	ctx := command.Context()
	db, d, err := openDatabase(ctx, source.Database, pool{})
	if err != nil {
		return err
	}
	defer closing(db, &err)
	opened, err := adopt.Open(ctx, db, d, source.Table, a.from)
	if err != nil {
		return err
	}
	if err := a.override(command, opened); err != nil {
		return err
	}
	switch {
	case a.print:
		return a.printScript(ctx, opened)
	case a.status:
		return a.printStatus(ctx, opened)
	case a.undo:
		return a.revert(ctx, opened)
	}
	survey, err := opened.Survey(ctx)
	if err != nil {
		return err
	}
	if opened.Check() == nil {
		if err := opened.Verify(ctx); err != nil {
			return err
		}
	}
	if a.plan {
		return a.printPlan(opened, survey)
	}
	return a.forward(ctx, opened, survey)
}

// override replaces the parts of the proposed mapping for which flags are given.
func (a *adoption) override(command *cobra.Command, opened *adopt.Adoption) error {
	m := &opened.Mapping
	for flag, field := range map[string]struct{ given, to *string }{
		"topic": {&a.mapping.Topic, &m.Topic}, "key": {&a.mapping.Key, &m.Key}, "payload": {&a.mapping.Payload, &m.Payload}, "id": {&a.mapping.ID, &m.ID},
		"headers": {&a.mapping.Headers, &m.Headers}, "waiting": {&a.mapping.Waiting, &m.Waiting}, "order": {&a.mapping.Order, &m.Order},
	} {
		if command.Flags().Changed(flag) {
			*field.to = *field.given
		}
	}
	if command.Flags().Changed("refuse") {
		m.Refuse = a.mapping.Refuse
	}
	if command.Flags().Changed("published") {
		if m.Published = a.mapping.Published; len(m.Published) == 1 && m.Published[0] == "none" {
			m.Published = nil
		}
	}
	if command.Flags().Changed("header") {
		m.Header = nil
		for _, text := range a.headers {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" || value == "" {
				return usagef("--header %q must have the form name=expression", text)
			}
			m.Header = append(m.Header, adopt.Header{Name: name, Value: value})
		}
	}
	if command.Flags().Changed("view") {
		opened.Way = adopt.Trigger
		if a.view {
			opened.Way = adopt.View
		}
	}
	return usage(opened.Valid())
}

func (a *adoption) printScript(ctx context.Context, opened *adopt.Adoption) error {
	script := opened.Script
	if a.undo {
		script = opened.UndoScript
	}
	text, err := script()
	if err != nil {
		return usage(err)
	}
	if !a.undo {
		if err := opened.Verify(ctx); err != nil {
			return err
		}
	}
	return a.program.print(text + "\n")
}

// forward asks for confirmation, forwards the backlog, and creates the trigger or the view.
func (a *adoption) forward(ctx context.Context, opened *adopt.Adoption, survey adopt.Survey) error {
	if err := opened.Check(); err != nil {
		return usage(withPlan(err))
	}
	if err := missing(survey); err != nil {
		return err
	}
	if err := a.printMapping(opened, survey); err != nil {
		return err
	}
	for _, text := range survey.Warnings {
		_, _ = fmt.Fprintln(a.stderr, "warning: "+text)
	}
	if !a.yes {
		question := fmt.Sprintf("This forwards the %d waiting rows of %s and all new ones to the outbox. Have you stopped the loop that sends these rows today?", max(survey.Waiting, 0), a.from)
		if err := a.ask(ctx, question); err != nil {
			return err
		}
	}
	forwarded, err := opened.Run(ctx, a.showProgress)
	if err != nil {
		done := fmt.Sprintf("%d waiting rows were forwarded: run the command again to continue, or with --undo to go back", forwarded)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return stopped{done}
		}
		if forwarded > 0 {
			err = fmt.Errorf("%w (%s)", err, done)
		}
		return err
	}
	return a.program.print(fmt.Sprintf("%d waiting rows were forwarded, and new rows of %s are forwarded by a %s.\n", forwarded, a.from, opened.Way))
}

// ask asks the user to confirm. Without a terminal it returns an error that recommends --yes.
func (a *adoption) ask(ctx context.Context, question string) error {
	err := a.confirm(ctx, question)
	if err == errKept && columns(a.stdin) == 0 {
		return fmt.Errorf("%w: give --yes to confirm without a terminal", err)
	}
	return err
}

func withPlan(err error) error {
	return fmt.Errorf("%w (see rowrelay adopt --help)", err)
}

func (a *adoption) showProgress(forwarded int64, try int) {
	text := fmt.Sprintf("%d rows forwarded", forwarded)
	if try > 0 {
		text = fmt.Sprintf("try %d: open transactions hold locks on the table; waiting", try)
	}
	_, _ = fmt.Fprintln(a.stderr, text) // an error doesn't matter, because the text only shows progress
}

func (a *adoption) revert(ctx context.Context, opened *adopt.Adoption) error {
	if opened.Adopted() == "" && !opened.Recorded() {
		return a.program.print(a.from + " is not adopted, so there is nothing to undo.\n")
	}
	if !a.yes {
		if err := a.ask(ctx, fmt.Sprintf("Stop forwarding new rows of %s?", a.from)); err != nil {
			return err
		}
	}
	parked, err := opened.Parked(ctx)
	if err != nil {
		return err
	}
	proposed, err := opened.Proposal(ctx)
	if err != nil {
		return err
	}
	rest, err := opened.Undo(ctx, a.showProgress)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("New rows of %s are no longer forwarded. The relay still delivers the messages in the outbox. Start the old loop again when rowrelay status shows that no message is left.\n", a.from)
	if parked > 0 {
		text += fmt.Sprintf("Messages that adopt has parked stay parked: %d (rowrelay messages list --state error). The old loop doesn't send their rows.\n", parked)
	}
	m := opened.Mapping
	if rest != "" {
		m.Waiting = rest
		text += fmt.Sprintf("Forwarded rows are not marked. The rows with %s were not forwarded: the old loop must send only these.\n", rest)
	}
	flags := mappingFlags(m, proposed)
	if opened.Way == adopt.View {
		flags += " --view"
	}
	if opened.Remembered() && flags != "" {
		text += "To adopt the table again with the same mapping, give" + flags + "\n"
		if rest != "" {
			text += "If the old loop has run meanwhile, replace the number in --waiting with the number of the last row that the loop has sent.\n"
		}
	}
	return a.program.print(text)
}

// mappingFlags returns the flags that change the proposed mapping to m.
func mappingFlags(m, proposed adopt.Mapping) (flags string) {
	add := func(flag string, values ...string) {
		for _, value := range values {
			flags += " --" + flag + " " + quoted(value)
		}
	}
	for _, f := range []struct{ flag, value, proposed string }{
		{"topic", m.Topic, proposed.Topic}, {"key", m.Key, proposed.Key}, {"payload", m.Payload, proposed.Payload}, {"id", m.ID, proposed.ID},
		{"headers", m.Headers, proposed.Headers}, {"waiting", m.Waiting, proposed.Waiting}, {"order", m.Order, proposed.Order},
	} {
		if f.value != f.proposed {
			add(f.flag, f.value)
		}
	}
	if !slices.Equal(m.Header, proposed.Header) {
		for _, h := range m.Header {
			add("header", h.Name+"="+h.Value)
		}
	}
	switch {
	case slices.Equal(m.Published, proposed.Published):
	case len(m.Published) == 0:
		add("published", "none")
	default:
		add("published", m.Published...)
	}
	if m.Refuse {
		flags += " --refuse"
	}
	return flags
}

// quoted quotes a text as one word for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (a *adoption) printStatus(ctx context.Context, opened *adopt.Adoption) error {
	survey, err := opened.Survey(ctx)
	if err != nil {
		return err
	}
	forwarded := "-"
	if opened.Recorded() {
		forwarded = fmt.Sprint(survey.Forwarded) + map[bool]string{false: "", true: " (complete)"}[survey.Complete]
	}
	rows := [][]string{
		{"table", opened.Table.String()},
		{"forwarded by", cmp.Or(string(survey.Adopted), map[bool]string{false: "nothing: it is not adopted", true: "nothing yet: run adopt again to continue, or with --undo to go back"}[opened.Recorded()])},
		{"waiting rows in the table", count(opened, survey.Waiting)},
		{"waiting rows forwarded by adopt", forwarded},
		{"parked because the outbox refuses them", fmt.Sprint(survey.Parked)},
	}
	return a.printTable(rows)
}

func count(opened *adopt.Adoption, rows int64) string {
	switch {
	case rows >= 0:
		return fmt.Sprint(rows)
	case opened.Adopted() != "":
		return "unknown: forwarded rows are not marked"
	}
	return "unknown: give --waiting"
}

// printMapping prints the table and the mapping.
func (a *adoption) printMapping(opened *adopt.Adoption, survey adopt.Survey) error {
	m, none := opened.Mapping, "-"
	headers := m.Headers
	for _, h := range m.Header {
		headers += ", " + h.Name + "=" + h.Value
	}
	origin := cmp.Or(m.Shape, "no known kind; the mapping follows the columns' names")
	if opened.Remembered() {
		origin = cmp.Or(m.Shape, "no known kind") + "; the mapping is from the last run"
	}
	rows := [][]string{
		{"table", opened.Table.String()},
		{"recognised as", origin},
		{"topic", cmp.Or(m.Topic, "? give --topic")},
		{"key", cmp.Or(m.Key, none+" (messages without a key have no order: give --key)")},
		{"payload", cmp.Or(m.Payload, none)},
		{"id", cmp.Or(m.ID, "generated")},
		{"headers", cmp.Or(strings.TrimPrefix(headers, ", "), none)},
		{"not forwarded", cmp.Or(strings.Join(opened.NotForwarded(), ", "), none)},
		{"waiting", cmp.Or(m.Waiting, "? give --waiting")},
		{"order", cmp.Or(m.Order, none)},
		{"published", cmp.Or(strings.Join(m.Published, ", "), "none: forwarded rows are not marked")},
		{"rows that wait", count(opened, survey.Waiting)},
	}
	if survey.Sampled {
		row := fmt.Sprintf("topic %q, key %q", survey.Topic.String, survey.Key.String)
		if m.ID != "" {
			row += fmt.Sprintf(", id %q", survey.ID.String)
		}
		rows = append(rows, []string{"a row", row})
	}
	return a.printTable(rows)
}

// forwardingTakes is the approximate time that a database takes to forward a row of 200 bytes, measured with 200,000 rows.
const forwardingTakes = 25 * time.Microsecond

func (a *adoption) printPlan(opened *adopt.Adoption, survey adopt.Survey) error {
	if err := a.printMapping(opened, survey); err != nil {
		return err
	}
	var text strings.Builder
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&text, "\n%s\n", title)
		}
		for _, line := range lines {
			fmt.Fprintf(&text, "  - %s\n", line)
		}
	}
	facts := opened.Facts()
	section("MISSING RIGHTS", survey.Missing)
	section("WARNINGS", survey.Warnings)
	section("COSTS", facts.Costs)
	inBatches := len(opened.Mapping.Published) > 0
	while := fmt.Sprintf("The command forwards all of them while it locks the table, because forwarded rows are not marked. For %d rows of 200 bytes this takes about %v.", max(survey.Waiting, 0), (time.Duration(max(survey.Waiting, 0)) * forwardingTakes).Round(100*time.Millisecond))
	if inBatches {
		while = "The command locks the table once for about this time, to forward the last of these rows."
	}
	section("LOCKS", append(facts.Locks, fmt.Sprintf("Finding the rows that wait takes %v now. %s Meanwhile programs that write to the table wait.", survey.Took.Round(time.Millisecond), while)))
	section("RIGHTS", facts.Rights)
	section("LIMITS", facts.Limits)
	if err := opened.Check(); err != nil {
		section("MISSING", []string{err.Error()})
		return cmp.Or(a.program.print(text.String()), usage(err))
	}
	script, err := opened.Script()
	if err != nil {
		return err
	}
	undo, err := opened.UndoScript()
	if err != nil {
		return err
	}
	title := "SQL"
	if inBatches {
		title += " (the command forwards most waiting rows in batches before it takes the lock)"
	}
	fmt.Fprintf(&text, "\n%s\n\n%s\n\nSQL OF --undo\n\n%s\n", title, script, undo)
	if err := a.program.print(text.String()); err != nil {
		return err
	}
	return missing(survey)
}

// missing returns an error if the database's user lacks rights.
func missing(survey adopt.Survey) error {
	if len(survey.Missing) == 0 {
		return nil
	}
	return fmt.Errorf("the database's user lacks rights: %s", strings.Join(survey.Missing, "; "))
}
