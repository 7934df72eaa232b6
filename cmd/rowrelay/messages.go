package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
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

const listHelp = `List the messages with the given ids, or those that match all given filters, lowest id
first. An id is the id of a row or of a message; rowrelay messages show --help explains
how ids are found. The list leaves out payloads, which rowrelay messages show prints.

In a large table, filters search about the first 20,000 messages of each state. With
--all they search the whole table.`

const showHelp = `Show everything about a message, including its payload and its last failed attempts (at
most 20). ID is the id of its row in the table, or the id of the message.

The command finds a row's id immediately. A message's id can belong to several rows: one
for each of its sinks, and the copies that replays wrote. Most message ids contain the
time at which they were generated (UUIDs of version 7 or 1). The command finds the rows
of that time immediately in a table of any size. For half a second the command also
searches the rows that were written later, which may be copies. If the id contains no
time, the command searches the whole table for half a second. If half a second was not
enough, a line on stderr reports this: continue with --after, or search everything with
--all, however long it takes.`

const skipHelp = `Unblock the keys that parked messages hold (on_park: hold), so that the later messages
of these keys are sent. The messages stay parked, and can still be requeued or discarded.
Select them by ids, by filters (which must all match), or with --all; without ids the
command asks for confirmation, unless --yes is given. Messages that hold no key are not
changed.

The relay carries out a skip within about two seconds, or later if a sink's buffer is full.
Until then the messages are shown in the state retry.

With --state retry, the command parks messages that wait for their next attempt, and
unblocks their keys.`

const retryHelp = `Immediately retry messages that wait for their next attempt (state retry). Select them by
ids, by filters (which must all match), or with --all. Their earlier attempts still count.
The relay tries them within about two seconds, or later if a sink's buffer is full. Messages
that are already due are not changed, because a relay may be sending them.`

const discardHelp = `Delete parked messages (state error) for good. Select them by ids, by filters (which must
all match), or with --all; without ids the command asks for confirmation, unless --yes is
given. Messages in other states are not changed.

A message that holds its key (on_park: hold) is deleted by the relay, which then unblocks
the key, within about two seconds, or later if a sink's buffer is full. Until then the
message is shown in the state retry.

With --state retry, the command deletes messages that wait for their next attempt.`

func (p program) messagesCommand() *cobra.Command {
	return group("messages", "List, show, requeue, replay, skip or discard messages",
		p.listCommand(), p.showCommand(),
		p.requeueCommand(), p.replayCommand(), p.replaysCommand(),
		p.changeCommand("retry [ID…]", "Immediately retry messages that wait for their next attempt", retryHelp, change{action: operate.Requeue, done: "retried"}, storage.StateRetry),
		p.changeCommand("skip [ID…]", "Unblock the keys that parked messages hold", skipHelp,
			change{operate.Skip, "skipped", "later messages of their keys are sent, which can't be undone"}, storage.StateError, storage.StateRetry),
		p.changeCommand("discard [ID…]", "Delete parked messages", discardHelp, change{operate.Discard, "discarded", "they are deleted for good"}, storage.StateError, storage.StateRetry),
	)
}

// messages holds the flags of one of the group's commands.
type messages struct {
	program
	target target
	filter operate.Selection
	json   bool

	// These are flags of the commands that change messages.
	by, reason  string
	dryRun, yes bool
	limit       int // change at most this number of messages
}

// change describes what a command does to messages.
type change struct {
	action string // as in operate.Bulk
	done   string // the past participle for output, such as "skipped"
	loss   string // the effect that can't be undone, which the confirmation shows; "" if no confirmation is needed
}

// command makes one of the group's commands. It calls the function work with the filter
// that the command's flags and arguments give.
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
			if err := m.printJSON(shown); err != nil {
				return err
			}
			return m.printNext(filter, found)
		}
		rows := [][]string{{"ID", "STATE", "TOPIC", "KEY", "SINKS", "ATTEMPTS", "CREATED", "MESSAGE ID", "ERROR"}}
		for _, info := range found {
			rows = append(rows, []string{
				fmt.Sprint(info.ID), string(info.State), cell(info.Message.Topic, 40), cell(info.Message.Key, 40), cell(info.Sinks, 60),
				fmt.Sprint(info.Attempts), m.when(info.CreatedAt), info.Message.ID, cell(info.LastError, 60),
			})
		}
		dropEmptyColumn(rows, "SINKS")
		if err := m.printTable(rows); err != nil {
			return err
		}
		return m.printNext(filter, found)
	})
	command.PreRunE = func(command *cobra.Command, _ []string) error {
		if m.filter.Limit < 1 {
			return usagef("--limit must be at least 1, not %d", m.filter.Limit)
		}
		return nil
	}
	m.filterFlags(command, operate.States...)
	command.Flags().Int64Var(&m.filter.After, "after", 0, "only messages with an `id` above this one; give the last id of a list to get the next page")
	command.Flags().IntVar(&m.filter.Limit, "limit", 100, "list at most this `number` of messages")
	command.Flags().BoolVar(&everything, "all", false, "search the whole table, however long it takes")
	return command
}

// dropEmptyColumn removes the column with this heading if only the heading has text.
func dropEmptyColumn(rows [][]string, heading string) {
	column := slices.Index(rows[0], heading)
	if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
		return
	}
	for i := range rows {
		rows[i] = slices.Delete(rows[i], column, column+1)
	}
}

// list returns the messages with the given ids, or those that match the filters.
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
		err = m.printBound(ctx, operator, filter)
	}
	return found, err
}

// printNext prints to stderr how to continue a list that has reached its limit.
func (m *messages) printNext(filter storage.Filter, found []storage.Info) error {
	if len(filter.IDs) > 0 || len(found) < filter.Limit {
		return nil
	}
	_, err := fmt.Fprintf(m.stderr, "listed %d messages, the maximum that --limit permits: continue with --after %d, or use a filter, for example --state pending\n", len(found), found[len(found)-1].ID)
	return err
}

// find returns the messages with the given ids. If it hasn't searched all rows, it prints to stderr how far it
// got.
func (m *messages) find(ctx context.Context, operator storage.Operator, filter storage.Filter, everything bool) (storage.Found, error) {
	patience := operate.FindPatience
	if everything {
		patience = 0
	}
	found, err := operator.Find(ctx, filter, patience)
	if err == nil && !found.All() && (filter.Limit == 0 || len(found.Infos) < filter.Limit) {
		more := "later rows may contain more matches, such as a replay's copies"
		if len(found.Infos) == 0 {
			more = "a later row may contain the message"
		}
		_, err = fmt.Fprintf(m.stderr, "searched the rows up to id %d of %d: %s; continue with --after %d, or search everything with --all\n", found.Until, found.Last, more, found.Until)
	}
	return found, err
}

// printBound prints to stderr that a list may be incomplete, because operate.LookThrough bounded the search.
func (m *messages) printBound(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
	if filter.LookThrough == 0 || !m.filter.Selects() {
		return nil
	}
	status, err := operator.Status(ctx)
	if err == nil && (len(status.Estimated)+len(status.AtLeast) > 0 || !status.Has(storage.GaugeCounts)) {
		_, err = fmt.Fprintf(m.stderr, "searched about %d messages in each of the outbox's tables after id %d; search from another id with --after, or everything with --all\n", filter.LookThrough, filter.AfterID)
	}
	return err
}

func (p program) showCommand() *cobra.Command {
	m := &messages{program: p}
	var everything bool
	command := m.command("show ID", "Show a message with its payload", showHelp, func(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
		found, err := m.find(ctx, operator, filter, everything)
		if err != nil {
			return fmt.Errorf("read message %s: %w", filter.IDs[0], err)
		}
		if len(found.Infos) == 0 && !found.All() {
			return fmt.Errorf("message %s was not found in the rows that were searched", filter.IDs[0])
		}
		if len(found.Infos) == 0 {
			return fmt.Errorf("message %s doesn't exist: list messages with rowrelay messages list", filter.IDs[0])
		}
		show := m.printMessage
		if m.json {
			show = func(info storage.Info) error { return m.printJSON(operate.NewFullMessage(info)) }
		}
		for _, info := range found.Infos { // several if the message has a row for each sink, or if its id was reused
			if err := show(info); err != nil {
				return err
			}
		}
		return nil
	})
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s needs exactly one id, of a row or of a message", command.CommandPath())
		}
		return nil
	}
	command.Flags().Int64Var(&m.filter.After, "after", 0, "only rows with an `id` above this one")
	command.Flags().BoolVar(&everything, "all", false, "search the whole table for a message's id, however long it takes")
	return command
}

// changeCommand makes one of the commands that change messages. The command changes the messages in one of
// the given states: the state that the user selects, or by default the first.
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
			_, _ = fmt.Fprintf(m.stderr, "more messages match: run the command again to continue\n")
		}
		if m.json {
			err = m.printJSON(map[string]int{c.done: count})
		} else {
			err = m.print(fmt.Sprintf("%s %d\n", c.done, count))
		}
		if err == nil && m.limit == 0 && count < len(filter.IDs) {
			expected := waiting(filter.State)
			if c.action == operate.Skip {
				expected += " and holding a key"
			}
			err = unchanged(filter, count, c.done, expected)
		}
		return err
	})
	m.mustSelect(command, c, of...)
	return command
}

// carryOut plans a change, asks for confirmation if the change needs it, and makes the change. With --dry-run
// it only plans. It returns the number of messages that were changed, even if it returns an error.
func (m *messages) carryOut(ctx context.Context, operator storage.Operator, bulk operate.Bulk, c change) (planned *operate.Plan, changed int, err error) {
	bulk.Limit = m.limit
	planned, err = bulk.Plan(ctx, operator)
	if err != nil || m.dryRun {
		return planned, 0, err
	}
	all := planned.Count
	if c.loss != "" && all > 0 && len(bulk.Filter.IDs) == 0 && !m.yes {
		if err := m.confirm(ctx, fmt.Sprintf("%s will be %s: %s. Continue?", counted(all), c.done, c.loss)); err != nil {
			return planned, 0, err
		}
	}
	progress := newProgress(m.stderr)
	changed, err = bulk.Run(ctx, operator, planned, func(done int) {
		progress.update(done, all, func(rate float64) string {
			left := max(0, all-done)
			return fmt.Sprintf("%s %s of %s, %.0f/s, %s left, about %v", c.done, grouped(done), grouped(all), rate, grouped(left),
				(time.Duration(float64(left) / rate * float64(time.Second))).Round(time.Second))
		})
	})
	progress.end()
	switch {
	case err != nil && ctx.Err() != nil:
		err = stopped{fmt.Sprintf("%s of %s %s; run the command again to continue", grouped(changed), grouped(all), c.done)}
	case err != nil:
		err = fmt.Errorf("%d of %d messages were %s before an error (run the command again for the rest): %w", changed, all, c.done, err)
	}
	return planned, changed, err
}

// counted formats a number of messages, such as "1 message" or "12,000 messages".
func counted(n int) string {
	if n == 1 {
		return "1 message"
	}
	return grouped(n) + " messages"
}

// unchanged returns the error of a command that didn't change all messages whose ids it was given. The argument expected describes
// the messages that the command can change.
func unchanged(filter storage.Filter, changed int, done, expected string) error {
	if len(filter.IDs) == 1 {
		return fmt.Errorf("message %s was not %s: it doesn't exist, or isn't %s", filter.IDs[0], done, expected)
	}
	return fmt.Errorf("%d of %d messages were %s: the others don't exist, or aren't %s", changed, len(filter.IDs), done, expected)
}

// waiting describes messages in this state for an error message.
func waiting(state storage.State) string {
	if state == storage.StateRetry {
		return "waiting for their next attempt (state retry, not due yet)"
	}
	return "parked (state error)"
}

// mustSelect adds the flags that select messages in one of the states. The command fails if none of these
// flags is given, or if it needs a confirmation and has no terminal.
func (m *messages) mustSelect(command *cobra.Command, c change, of ...storage.State) {
	var all bool
	everyOne := "every parked message"
	if of[0] == storage.StateRetry {
		everyOne = "every message that waits for its next attempt"
	}
	m.filterFlags(command, of...)
	flags := command.Flags()
	flags.BoolVar(&all, "all", false, "select "+everyOne)
	flags.IntVar(&m.limit, "limit", 0, "change at most this `number` of messages, the first ones; 0 for no limit")
	flags.BoolVar(&m.dryRun, "dry-run", false, "change nothing, and print how many messages of each topic would be changed")
	if c.loss != "" {
		flags.BoolVar(&m.yes, "yes", false, "don't ask for confirmation")
	}
	command.PreRunE = func(command *cobra.Command, args []string) error {
		state, selects := storage.State(m.filter.State), m.filter.Selects() || len(args) > 0
		switch {
		case all && selects:
			return usagef("--all selects %s: it can't be given with ids or filters", everyOne)
		case !all && !selects && command.Flags().Changed("reason"):
			return usagef("no messages are selected: give ids, filters, or --all (--reason is a note for the log of actions; --error selects by the error)")
		case !all && !selects:
			return usagef("no messages are selected: give ids, filters, or --all")
		case m.limit < 0:
			return usagef("--limit must be at least 0, not %d", m.limit)
		case state == "" || slices.Contains(of, state):
		case len(of) > 1:
			return usagef("--state %s: only messages in the states error (parked) and retry can be %s", state, c.done)
		default:
			return usagef("--state %s: only messages in the state %s can be %s", state, map[bool]string{true: "error (parked)", false: "retry"}[of[0] == storage.StateError], c.done)
		}
		if c.loss != "" && len(args) == 0 && !m.yes && !m.dryRun && columns(m.stdin) == 0 {
			return usagef("%s can't be undone, and needs a terminal to ask for confirmation: give --yes to confirm, or --dry-run to see what it would change", command.CommandPath())
		}
		return nil
	}
	author(command, &m.by, &m.reason)
}

// filterFlags adds the filter flags of a command whose messages are in one of the states.
func (m *messages) filterFlags(command *cobra.Command, of ...storage.State) {
	var names []string
	for _, state := range of {
		names = append(names, string(state))
	}
	flags := command.Flags()
	topicFlag(command, &m.filter.Topic)
	flags.StringVar(&m.filter.TopicPrefix, "topic-prefix", "", "only messages of topics that begin with this `text`")
	flags.StringVar(&m.filter.Key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&m.filter.Sink, "sink", "", "only messages that have a separate row for this `sink`")
	flags.StringVar(&m.filter.State, "state", "", "only messages in this `state`: "+strings.Join(names, ", "))
	flags.StringVar(&m.filter.Since, "since", "", "only messages written since this `time` or age, such as 2026-01-31T12:00:00Z or 2h")
	flags.BoolVar(&m.filter.Holds, "holds", false, "only parked messages that hold their keys")
	flags.StringVar(&m.filter.Error, "error", "", "only messages whose last error contains this `text`")
}

// printMessage prints a message for people. It prints a payload that isn't UTF-8 as base64.
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
	if len(info.AttemptLog) > 0 {
		failed := [][]string{{"\nFAILED ATTEMPT", "SINK", "RELAY", "AFTER", "ANSWER"}}
		for _, attempt := range info.AttemptLog {
			took := time.Duration(attempt.DurationMS) * time.Millisecond
			failed = append(failed, []string{at(attempt.At), cmp.Or(attempt.Sink, "-"), attempt.Relay, took.String(), cell(attempt.Answer, 1000)})
		}
		if err := m.printTable(failed); err != nil {
			return err
		}
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

// cell returns the text on one line, cut to the given number of characters.
func cell(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// topicFlag adds --topic, which has no wildcards and refuses a topic that ends with an asterisk.
func topicFlag(command *cobra.Command, to *string) {
	command.Flags().Func("topic", "only messages of exactly this `topic`", func(topic string) error {
		if *to = topic; strings.HasSuffix(topic, "*") {
			return errors.New("--topic has no wildcards; rowrelay messages list and some other commands have --topic-prefix")
		}
		return nil
	})
}
