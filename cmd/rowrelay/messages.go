package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const listHelp = `List messages by id, lowest first: those with the given ids (the table's or the
messages'), or those that all of the given filters select. Payloads are not
shown; rowrelay messages show does. Of a large table about the first 20,000 messages of each kind
are looked through for those that filters select; --all looks through everything. For how a
message's id is found see rowrelay messages show.`

const showHelp = `Show all of a message, its payload included, by the table's id or the message's.

A table's id is found at once. A message's id may have several rows: a replay's copies,
or those of its sinks. Most ids begin with the time when they were made (UUIDs of version
7 or 1): the rows that were written then are looked at first, at once in a table of any
size, and for half a second those that were written after them, where copies are. An id
without a time is looked for in the whole table, for half a second. Where that wasn't
enough to see all rows, a line says so, and how to go on: --after, or --all for all,
however long it takes.`

const skipHelp = `Have the keys go on that parked messages hold (on_park: hold): of those with the
given ids, or those that all of the given filters select, or with --all of every
parked message of the table: then it asks first, unless --yes says that you mean
it. The messages stay parked; requeue and discard take them as before. The relay
carries it out, within a second or two where its sinks have room; until then they
show as retry. Messages that hold no key are not touched.

With --state retry it is about messages that wait for their next attempt: they are
parked instead, and their keys go on.`

const retryHelp = `Try messages again now that wait for their next attempt (state retry): those with
the given ids, or those that all of the given filters select, or with --all every
one of the table. They keep the attempts that were charged. The relay tries them
within a second or two, where their sinks have room. Those that are due already, and
so may be being sent, are not touched.`

const discardHelp = `Delete parked messages (state error) for good: those with the given ids, or
those that all of the given filters select, or with --all every parked message
of the table: then it asks first, unless --yes says that you mean it. Of one that
holds its key (on_park: hold) the relay does so, and the key goes on, within a second
or two where its sinks have room; until then it shows as retry. Other states are not touched.

With --state retry it is about messages that wait for their next attempt.`

func (p program) messagesCommand() *cobra.Command {
	return group("messages", "List, show, requeue, replay, skip or discard messages",
		p.listCommand(), p.showCommand(),
		p.requeueCommand(), p.replayCommand(), p.replaysCommand(),
		p.changeCommand("retry [ID…]", "Try messages again now that wait for their next attempt", retryHelp, change{action: operate.Requeue, done: "retried"}, storage.StateRetry),
		p.changeCommand("skip [ID…]", "Have keys go on that parked messages hold", skipHelp,
			change{operate.Skip, "skipped", "their keys go on, and what was behind them can't be put back"}, storage.StateError, storage.StateRetry),
		p.changeCommand("discard [ID…]", "Delete parked messages", discardHelp, change{operate.Discard, "discarded", "they are deleted for good"}, storage.StateError, storage.StateRetry),
	)
}

// messages are the flags of one of the group's commands.
type messages struct {
	program
	target target
	filter operate.Selection
	json   bool

	// Of a command that changes messages.
	by, reason  string
	dryRun, yes bool
	limit       int // of those that are changed
}

// change is what a command does to messages.
type change struct {
	action string // as in operate.Bulk
	done   string // what the messages are then
	loss   string // what can't be undone, and so is asked about; empty: nothing
}

// command makes one of the group's commands; work gets the filter of its flags
// and arguments.
func (m *messages) command(use, short, long string, work func(context.Context, storage.Operator, storage.Filter) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			m.filter.IDs = args
			filter, err := m.filter.Filter("--")
			if err != nil {
				return usage(err)
			}
			return m.target.operate(m.program, command, func(ctx context.Context, operator storage.Operator) error {
				if m.by != "" {
					operator = storage.Logged(operator, m.by, m.reason, filter.Describe())
				}
				return work(ctx, operator, filter)
			})
		},
	}
	m.target.addFlags(command)
	jsonFlag(command, &m.json)
	return command
}

func (p program) listCommand() *cobra.Command {
	m := &messages{program: p}
	var everything bool
	command := m.command("list [ID…]", "List messages", listHelp, func(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
		found, err := m.list(ctx, operator, filter, everything)
		if err != nil {
			return fmt.Errorf("list messages: %w", err)
		}
		if m.json {
			shown := []operate.Message{}
			for _, info := range found {
				shown = append(shown, operate.NewMessage(info))
			}
			return m.printJSON(shown)
		}
		rows := [][]string{{"ID", "STATE", "TOPIC", "KEY", "SINKS", "ATTEMPTS", "CREATED", "MESSAGE ID", "ERROR"}}
		for _, info := range found {
			rows = append(rows, []string{
				fmt.Sprint(info.ID), string(info.State), cell(info.Message.Topic, 40), cell(info.Message.Key, 40), cell(info.Sinks, 60),
				fmt.Sprint(info.Attempts), m.when(info.CreatedAt), info.Message.ID, cell(info.LastError, 60),
			})
		}
		if !slices.ContainsFunc(found, func(info storage.Info) bool { return info.Sinks != "" }) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], 4, 5)
			}
		}
		return m.printTable(rows)
	})
	command.PreRunE = func(command *cobra.Command, _ []string) error {
		if m.filter.Limit < 1 {
			return usagef("--limit must be at least 1, not %d", m.filter.Limit)
		}
		return nil
	}
	m.filterFlags(command, operate.States...)
	command.Flags().Int64Var(&m.filter.After, "after", 0, "only messages with an `id` above this one: the next page")
	command.Flags().IntVar(&m.filter.Limit, "limit", 100, "at most this `number`")
	command.Flags().BoolVar(&everything, "all", false, "look through the whole table, however long it takes")
	return command
}

// list finds messages by ids, or lists those that filters select.
func (m *messages) list(ctx context.Context, operator storage.Operator, filter storage.Filter, everything bool) ([]storage.Info, error) {
	if len(filter.IDs) > 0 {
		filter.NoPayloads, filter.MaxBytes = true, operate.PageBytes
		found, err := m.find(ctx, operator, filter, everything)
		return found.Infos, err
	}
	if !everything {
		filter.LookThrough = operate.LookThrough
	}
	found, err := operate.List(ctx, operator, filter)
	if err == nil && len(found) < filter.Limit {
		err = m.tellBound(ctx, operator, filter)
	}
	return found, err
}

// find finds messages by ids, and says where not all rows were looked at.
func (m *messages) find(ctx context.Context, operator storage.Operator, filter storage.Filter, everything bool) (storage.Found, error) {
	patience := operate.FindPatience
	if everything {
		patience = 0
	}
	found, err := operator.Find(ctx, filter, patience)
	if err == nil && !found.All() && (filter.Limit == 0 || len(found.Infos) < filter.Limit) {
		more := "there may be more above it, as a replay's copies"
		if len(found.Infos) == 0 {
			more = "it may be above that"
		}
		_, err = fmt.Fprintf(m.stderr, "looked through the rows up to the id %d of %d: %s; --after %d goes on, --all looks through everything\n", found.Until, found.Last, more, found.Until)
	}
	return found, err
}

// tellBound says that there may be more, where a listing ended as it had looked at so many.
func (m *messages) tellBound(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
	if filter.LookThrough == 0 || !m.filter.Selects() {
		return nil
	}
	status, err := operator.Status(ctx)
	if err == nil && (len(status.Estimated)+len(status.AtLeast) > 0 || !status.Has(storage.GaugeCounts)) {
		_, err = fmt.Fprintf(m.stderr, "looked through about %d messages of each table after the id %d; --after goes on elsewhere, --all looks through everything\n", filter.LookThrough, filter.AfterID)
	}
	return err
}

func (p program) showCommand() *cobra.Command {
	m := &messages{program: p}
	var everything bool
	command := m.command("show ID", "Show all of a message, its payload included", showHelp, func(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
		found, err := m.find(ctx, operator, filter, everything)
		if err != nil {
			return fmt.Errorf("read message %s: %w", filter.IDs[0], err)
		}
		if len(found.Infos) == 0 && !found.All() {
			return fmt.Errorf("no message %s was found among the rows that were looked through", filter.IDs[0])
		}
		if len(found.Infos) == 0 {
			return fmt.Errorf("there is no message %s: rowrelay messages list shows which there are", filter.IDs[0])
		}
		show := m.printMessage
		if m.json {
			show = func(info storage.Info) error { return m.printJSON(operate.NewFullMessage(info)) }
		}
		for _, info := range found.Infos { // several where its sinks differ, or its id was given out again
			if err := show(info); err != nil {
				return err
			}
		}
		return nil
	})
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s needs exactly one id: the table's or the message's", command.CommandPath())
		}
		return nil
	}
	command.Flags().Int64Var(&m.filter.After, "after", 0, "only rows with an `id` above this one")
	command.Flags().BoolVar(&everything, "all", false, "look through the whole table for a message's id, however long it takes")
	return command
}

// changeCommand makes retry, skip or discard, of messages in one of these states.
func (p program) changeCommand(use, short, long string, c change, of ...storage.State) *cobra.Command {
	m := &messages{program: p}
	command := m.command(use, short, long, func(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
		filter.State = cmp.Or(filter.State, of[0])
		planned, count, err := m.carryOut(ctx, operator, operate.Bulk{Action: c.action, Filter: filter}, c)
		if m.dryRun && err == nil {
			return m.printPlan(planned, c.done)
		}
		if err != nil {
			return err
		}
		if planned.More {
			_, _ = fmt.Fprintf(m.stderr, "there are more: run it again to go on\n")
		}
		if m.json {
			err = m.printJSON(map[string]int{c.done: count})
		} else {
			err = m.print(fmt.Sprintf("%s %d\n", c.done, count))
		}
		if err == nil && m.limit == 0 && count < len(filter.IDs) {
			err = fmt.Errorf("%d of %d messages were %s: the others aren't there, or aren't %s%s", count, len(filter.IDs), c.done, waiting(filter.State), map[bool]string{true: ", or hold no key"}[c.action == operate.Skip])
		}
		return err
	})
	m.mustSelect(command, c, of...)
	return command
}

// carryOut plans a change and does it, unless it is only to be told, after the question that belongs to
// it. It says how many messages were changed, and so does its error.
func (m *messages) carryOut(ctx context.Context, operator storage.Operator, bulk operate.Bulk, c change) (planned *operate.Plan, changed int, err error) {
	bulk.Limit = m.limit
	planned, err = bulk.Plan(ctx, operator)
	if err != nil || m.dryRun {
		return planned, 0, err
	}
	all := planned.Count
	if c.loss != "" && all > 0 && len(bulk.Filter.IDs) == 0 && !m.yes {
		if err := m.confirm(ctx, fmt.Sprintf("%s will be %s: %s. Go on?", counted(all), c.done, c.loss)); err != nil {
			return planned, 0, err
		}
	}
	progress := newProgress(m.stderr)
	changed, err = bulk.Run(ctx, operator, planned, func(done int) {
		progress.tell(done, all, func(rate float64) string {
			left := max(0, all-done)
			return fmt.Sprintf("%s %s of %s, %.0f a second, %s left, about %v", c.done, grouped(done), grouped(all), rate, grouped(left),
				(time.Duration(float64(left) / rate * float64(time.Second))).Round(time.Second))
		})
	})
	progress.end()
	switch {
	case err != nil && ctx.Err() != nil:
		err = stopped{fmt.Sprintf("%s of %s %s; run it again to go on", grouped(changed), grouped(all), c.done)}
	case err != nil:
		err = fmt.Errorf("%d of %d messages were %s (asked again, it goes on with the rest), then: %w", changed, all, c.done, err)
	}
	return planned, changed, err
}

// counted is a number of messages in words.
func counted(n int) string {
	if n == 1 {
		return "1 message"
	}
	return grouped(n) + " messages"
}

// waiting says what messages in this state are.
func waiting(state storage.State) string {
	if state == storage.StateRetry {
		return "waiting for their next attempt (state retry, not due yet)"
	}
	return "parked (state error)"
}

// mustSelect adds the flags by which messages in one of these states are selected, and refuses
// a command without any, or one that has to ask and can't.
func (m *messages) mustSelect(command *cobra.Command, c change, of ...storage.State) {
	var all bool
	everyOne := "every parked message"
	if of[0] == storage.StateRetry {
		everyOne = "every message that waits for its next attempt"
	}
	m.filterFlags(command, of...)
	flags := command.Flags()
	flags.BoolVar(&all, "all", false, everyOne)
	flags.IntVar(&m.limit, "limit", 0, "at most this `number`, the first ones; 0 is no bound")
	flags.BoolVar(&m.dryRun, "dry-run", false, "change nothing: say how many messages it would be, of which topics")
	if c.loss != "" {
		flags.BoolVar(&m.yes, "yes", false, "don't ask")
	}
	command.PreRunE = func(command *cobra.Command, args []string) error {
		state, selects := storage.State(m.filter.State), m.filter.Selects() || len(args) > 0
		switch {
		case all && selects:
			return usagef("--all is %s: it can't be given with ids or filters", everyOne)
		case !all && !selects:
			return usagef("say which messages: ids, filters, or --all for every one")
		case m.limit < 0:
			return usagef("--limit must not be negative, not %d", m.limit)
		case state == "" || slices.Contains(of, state):
		case len(of) > 1:
			return usagef("--state %s: only parked messages, those in state error, and those in state retry can be %s", state, c.done)
		default:
			return usagef("--state %s: only %s can be %s", state, map[bool]string{true: "parked messages, those in state error,", false: "messages in state retry"}[of[0] == storage.StateError], c.done)
		}
		if c.loss != "" && len(args) == 0 && !m.yes && !m.dryRun && columns(m.stdin) == 0 {
			return usagef("%s changes what can't be undone, and nobody can be asked: --yes says that you mean it, --dry-run what it would be", command.CommandPath())
		}
		return nil
	}
	author(command, &m.by, &m.reason)
}

// filterFlags adds the flags that select messages, for a command that takes those in these states.
func (m *messages) filterFlags(command *cobra.Command, of ...storage.State) {
	var names []string
	for _, state := range of {
		names = append(names, string(state))
	}
	flags := command.Flags()
	flags.StringVar(&m.filter.Topic, "topic", "", "only messages of exactly this `topic`")
	flags.StringVar(&m.filter.Key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&m.filter.Sink, "sink", "", "only messages that wait for this `sink`, or came to it, apart from the other sinks of their topic")
	flags.StringVar(&m.filter.State, "state", "", "only messages in this `state`: "+strings.Join(names, ", "))
	flags.StringVar(&m.filter.Since, "since", "", "only messages written at or after this `time`, or so long ago: 2026-01-31T12:00:00Z or 2h")
	flags.BoolVar(&m.filter.Holds, "holds", false, "only parked messages that hold their keys")
	flags.StringVar(&m.filter.Error, "error", "", "only messages whose last error contains this `text`")
}

// printMessage shows a message to people: text as it is, bytes as base64.
func (m *messages) printMessage(info storage.Info) error {
	at := func(at time.Time) string {
		text := shownTime(at)
		if short := m.when(at); short != text {
			text += " (" + short + ")"
		}
		return text
	}
	rows := [][]string{
		{"id", fmt.Sprint(info.ID)}, {"message id", info.Message.ID}, {"state", string(info.State)},
		{"topic", info.Message.Topic}, {"key", info.Message.Key}, {"sinks", info.Sinks}, {"lane", fmt.Sprint(info.Lane)},
		{"priority", fmt.Sprint(info.Message.Priority)}, {"attempts", fmt.Sprint(info.Attempts)}, {"crashes", fmt.Sprint(info.Crashes)},
		{"created", at(info.CreatedAt)}, {"available", at(info.Message.AvailableAt)}, {"expires", at(info.Message.ExpiresAt)}, {"finished", at(info.FinishedAt)},
		{"claimed by", info.ClaimedBy}, {"receipt", info.Receipt}, {"last error", cell(info.LastError, 1000)}, {"malformed", info.Malformed},
		{"holds its key", map[bool]string{true: "since " + at(info.Message.AvailableAt)}[info.Holds == storage.HoldsKey]},
	}
	for _, name := range slices.Sorted(maps.Keys(info.Message.Headers)) {
		rows = append(rows, []string{"header " + cell(name, 60), cell(info.Message.Headers[name], 1000)})
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
	if err := m.printTable(rows); err != nil {
		return err
	}
	payload := info.Message.Payload
	shown := string(payload)
	switch {
	case payload == nil:
		shown = "(NULL)"
	case !utf8.Valid(payload):
		shown = fmt.Sprintf("base64 of %d bytes: %s", len(payload), base64.StdEncoding.EncodeToString(payload))
	}
	return m.print("\n" + printable(shown) + "\n")
}

// cell is a text from a message in one line of at most so many characters.
func cell(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}
