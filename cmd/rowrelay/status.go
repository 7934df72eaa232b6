package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const statusHelp = `Count the messages of a table by state, and list its relays, and what is paused or
limited.

  pending    to be delivered now
  claimed    claimed by a relay, by rows
  scheduled  not before its time
  retry      waits for its next attempt
  error      parked: only rowrelay messages requeue brings it back
  done       delivered, kept for the retention

Up to 50,000 of a kind are counted. Where there are more, the count says "about", as
the database estimates it, or "at least". What the database doesn't tell in 2 s is left out, and
the rest is shown.

With --watch it is shown again and again, on a terminal in its place, until it is
interrupted; with how many messages more or fewer a second there are of each state,
where they could be counted.

A relay that "waits" is alive and takes no message, as others work on the table whose
sinks or routes aren't its own; see rowrelay run --join.`

// tooLong stands for what the database didn't tell in time.
const tooLong = "unknown: the database took too long"

func (p program) statusCommand() *cobra.Command {
	var t target
	var asJSON, watch bool
	var every time.Duration
	command := &cobra.Command{
		Use:   "status",
		Short: "Count messages by state, and list relays and pauses",
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
				return p.showStatus(command.Context(), operator, source.Table, every, asJSON)
			})
		},
	}
	t.addFlags(command)
	jsonFlag(command, &asJSON)
	command.Flags().BoolVar(&watch, "watch", false, "show it again and again, until it is interrupted")
	command.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch, so often: a `duration`")
	return command
}

// showStatus shows the status, and then again every so often; where that is 0, once.
func (p program) showStatus(ctx context.Context, operator storage.Operator, table string, every time.Duration, asJSON bool) error {
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
		return p.printStatus(status, before)
	}
	if every > 0 {
		return p.redraw(ctx, every, show)
	}
	return show(p)
}

// statusBefore is one that was shown before, to tell the changes by.
type statusBefore struct {
	storage.Status
	at time.Time
}

// rate is by how many a second a count has changed since, where both were counted; empty where
// it hasn't.
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

// printStatus shows a status, with what has changed since the one before, if there is one.
func (p program) printStatus(status storage.Status, before *statusBefore) error {
	told := func(gauge storage.Gauge, text string) string {
		if !status.Has(gauge) {
			return tooLong
		}
		return text
	}
	rows := [][]string{
		{"claim", cmp.Or(string(status.Claim), "not claimed yet")},
		{"lanes leased", told(storage.GaugeLanes, fmt.Sprintf("%d of %d", status.LanesLeased, storage.Lanes))},
	}
	for _, state := range operate.States {
		count := fmt.Sprint(status.Counts[state])
		if slices.Contains(status.Estimated, state) {
			count = "about " + count
		}
		if slices.Contains(status.AtLeast, state) {
			count = "at least " + count
		}
		row := []string{string(state), told(storage.GaugeCounts, count)}
		if before != nil {
			row = append(row, before.rate(status, state))
		}
		rows = append(rows, row)
	}
	age := func(gauge storage.Gauge, age time.Duration) string {
		if columns(p.stdout) > 0 {
			return told(gauge, elapsed(age))
		}
		return told(gauge, age.Round(time.Millisecond).String())
	}
	rows = append(rows, []string{"oldest pending", age(storage.GaugeOldestPending, status.OldestPending)})
	if status.Counts[storage.StateRetry] > 0 {
		rows = append(rows, []string{"oldest retry", age(storage.GaugeOldestRetry, status.OldestRetry)})
	}
	if !status.Has(storage.GaugeHeldKeys) || status.HeldKeys > 0 {
		rows = append(rows, []string{"held keys", told(storage.GaugeHeldKeys, fmt.Sprint(status.HeldKeys))})
	}
	if status.HeldKeys > 0 {
		rows = append(rows, []string{"oldest held key", age(storage.GaugeHeldKeys, status.OldestHeld)})
	}
	rows = append(rows, []string{"relays", told(storage.GaugeRelays, fmt.Sprint(len(status.Relays)))})
	if err := p.printTable(rows); err != nil {
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
