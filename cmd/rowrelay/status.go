package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const statusHelp = `Count the messages of a table by state, and list its pending topics, pauses, limits
and relays.

  pending    due now
  claimed    claimed by a relay (with --claim rows)
  scheduled  its available_at is in the future
  retry      failed, and waits for its next attempt
  error      parked, until an operator requeues or discards it
  done       delivered, and kept for the retention

At most 50,000 messages of a state are counted. If there are more, the count is the
database's estimate ("about") or a lower bound ("at least"). A figure that takes the
database more than 2 s is shown as unknown.

The topics are those of the first 1,000 pending messages. With --config, a topic to which
no route of the configuration applies is marked with "no route": its messages wait.

With --watch the status is printed repeatedly until the command is interrupted; on a
terminal each status replaces the previous one. States that are counted exactly also
show by how many messages per second they grow or shrink.

A relay that "waits" is alive but takes no messages, because the relays that work on
the table have other sinks or routes; see rowrelay run --join.`

// tooLong is printed in place of a figure that the database didn't return in time.
const tooLong = "unknown: the database took too long"

func (p program) statusCommand() *cobra.Command {
	var t target
	var asJSON, watch bool
	var every time.Duration
	command := &cobra.Command{
		Use:   "status",
		Short: "Count messages by state, and list topics, relays and pauses",
		Long:  statusHelp,
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usagef("--interval must be at least 100ms, not %v", every)
			}
			source, err := t.resolve(p, command)
			if err != nil {
				return err
			}
			if !watch {
				every = 0
			}
			return withOperator(command.Context(), source, func(operator storage.Operator) error {
				return p.showStatus(command.Context(), operator, source.Table, t.hasRoute(source), every, asJSON)
			})
		},
	}
	t.addFlags(command)
	jsonFlag(command, &asJSON)
	command.Flags().BoolVar(&watch, "watch", false, "repeat until interrupted")
	command.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch: the `duration` from one status to the next")
	return command
}

// showStatus prints the status once if the argument every is 0, and otherwise repeatedly at
// this interval.
func (p program) showStatus(ctx context.Context, operator storage.Operator, table string, hasRoute func(topic string) bool, every time.Duration, asJSON bool) error {
	var last *statusBefore
	show := func(p program) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return fmt.Errorf("count the messages of %s: %w", table, err)
		}
		if asJSON {
			return p.printJSON(admin.NewReport(status))
		}
		before := last
		last = &statusBefore{status, time.Now()}
		if every > 0 {
			if err := p.print(fmt.Sprintf("%s at %s, every %v\n\n", table, last.at.Format(time.TimeOnly), every)); err != nil {
				return err
			}
		}
		return p.printStatus(status, hasRoute, before)
	}
	if every > 0 {
		return p.redraw(ctx, every, show)
	}
	return show(p)
}

// statusBefore is the status that was printed last, from which rates are computed.
type statusBefore struct {
	storage.Status
	at time.Time
}

// rate returns the change of a state's count per second since the status b was printed. It
// returns "" if the count has not changed, or if one of the two counts is an estimate, a lower
// bound, or unknown.
func (b *statusBefore) rate(now storage.Status, state storage.State) string {
	for _, status := range []storage.Status{b.Status, now} {
		if slices.Contains(status.Estimated, state) || slices.Contains(status.AtLeast, state) || !status.Has(storage.GaugeCounts) {
			return ""
		}
	}
	more := now.Counts[state] - b.Counts[state]
	if more == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f/s", float64(more)/max(time.Since(b.at).Seconds(), 0.001))
}

// countOf returns the number of messages in a state as text, with "about" before an estimate and "at least" before a lower bound.
func countOf(status storage.Status, state storage.State) string {
	switch count := fmt.Sprint(status.Counts[state]); {
	case slices.Contains(status.Estimated, state):
		return "about " + count
	case slices.Contains(status.AtLeast, state):
		return "at least " + count
	default:
		return count
	}
}

// printStatus prints a status. If an earlier status is given, it adds the rates of change since
// that status.
func (p program) printStatus(status storage.Status, hasRoute func(topic string) bool, before *statusBefore) error {
	known := func(gauge storage.Gauge, text string) string {
		if !status.Has(gauge) {
			return tooLong
		}
		return text
	}
	rows := [][]string{
		{"claim", cmp.Or(string(status.Claim), "not claimed yet")},
		{"lanes leased", known(storage.GaugeLanes, fmt.Sprintf("%d of %d", status.LanesLeased, storage.Lanes))},
	}
	for _, state := range operate.States {
		row := []string{string(state), known(storage.GaugeCounts, countOf(status, state))}
		if before != nil {
			row = append(row, before.rate(status, state))
		}
		rows = append(rows, row)
	}
	age := func(gauge storage.Gauge, age time.Duration) string {
		if columns(p.stdout) > 0 {
			return known(gauge, elapsed(age))
		}
		return known(gauge, age.Round(time.Millisecond).String())
	}
	rows = append(rows, []string{"oldest pending", age(storage.GaugeOldestPending, status.OldestPending)})
	if status.Counts[storage.StateRetry] > 0 {
		rows = append(rows, []string{"oldest retry", age(storage.GaugeOldestRetry, status.OldestRetry)})
	}
	if !status.Has(storage.GaugeHeldKeys) || status.HeldKeys > 0 {
		rows = append(rows, []string{"held keys", known(storage.GaugeHeldKeys, fmt.Sprint(status.HeldKeys))})
	}
	if status.HeldKeys > 0 {
		rows = append(rows, []string{"oldest held key", age(storage.GaugeHeldKeys, status.OldestHeld)})
	}
	rows = append(rows, []string{"relays", known(storage.GaugeRelays, fmt.Sprint(len(status.Relays)))})
	if err := p.printTable(rows); err != nil {
		return err
	}
	if err := p.printTopics(status.Topics, hasRoute); err != nil {
		return err
	}
	if err := p.printControls(status.Controls); err != nil || len(status.Relays) == 0 {
		return err
	}
	rows = [][]string{{"\nRELAY", "HOST", "VERSION", "CLAIM", "LANES", "ALIVE", "LAST BEAT"}}
	for _, each := range status.Relays {
		alive := map[bool]string{true: "yes", false: "no"}[each.Alive]
		if each.Alive && each.Config.Membership == storage.Standby {
			alive = "waits"
		}
		rows = append(rows, []string{each.Name, each.Host, each.Version, string(each.Claim), fmt.Sprint(each.Lanes), alive, p.when(each.LastHeartbeat)})
	}
	return p.printTable(rows)
}

// mostTopics is the maximum number of topics that status prints.
const mostTopics = 10

// printTopics prints the topics with the most messages among the first 1,000 pending ones.
func (p program) printTopics(topics map[string]int64, hasRoute func(topic string) bool) error {
	if len(topics) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(topics), func(a, b string) int {
		return cmp.Or(cmp.Compare(topics[b], topics[a]), strings.Compare(a, b))
	})
	rows := [][]string{{"\nPENDING TOPIC", "OF THE FIRST 1000"}}
	for _, name := range names[:min(len(names), mostTopics)] {
		row := []string{cell(name, 60), fmt.Sprint(topics[name])}
		if !hasRoute(name) {
			row = append(row, "no route")
		}
		rows = append(rows, row)
	}
	if more := len(names) - mostTopics; more > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d more", more), ""})
	}
	return p.printTable(rows)
}
