package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/admin"
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
			return withOperator(command.Context(), source, func(operator storage.Operator) error {
				if watch {
					return p.watchStatus(command.Context(), operator, source.Table, every, asJSON)
				}
				status, err := operator.Status(command.Context())
				if err != nil {
					return fmt.Errorf("count the messages of %s: %w", source.Table, err)
				}
				if asJSON {
					return p.printJSON(admin.NewReport(status))
				}
				return p.printStatus(admin.NewReport(status), nil)
			})
		},
	}
	t.addFlags(command)
	jsonFlag(command, &asJSON)
	command.Flags().BoolVar(&watch, "watch", false, "show it again and again, until it is interrupted")
	command.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch, so often: a `duration`")
	return command
}

// watchStatus shows the status again and again.
func (p program) watchStatus(ctx context.Context, operator storage.Operator, table string, every time.Duration, asJSON bool) error {
	var last *statusBefore
	return p.redraw(ctx, every, func(p program) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return fmt.Errorf("count the messages of %s: %w", table, err)
		}
		r, at := admin.NewReport(status), time.Now()
		if asJSON {
			return p.printJSON(r)
		}
		if err := p.print(fmt.Sprintf("%s at %s, every %v\n\n", table, at.Format(time.TimeOnly), every)); err != nil {
			return err
		}
		before := last
		last = &statusBefore{r, at}
		return p.printStatus(r, before)
	})
}

// statusBefore is one that was shown before, to tell the changes by.
type statusBefore struct {
	admin.Report
	at time.Time
}

// rate is by how many a second a count has changed since, where both were counted; empty where
// it hasn't.
func (b *statusBefore) rate(r admin.Report, state storage.State, was, is int64) string {
	for _, report := range []admin.Report{b.Report, r} {
		if slices.Contains(report.Estimated, state) || slices.Contains(report.AtLeast, state) || slices.Contains(report.Absent, storage.GaugeCounts) {
			return ""
		}
	}
	if was == is {
		return ""
	}
	return fmt.Sprintf("%+.1f/s", float64(is-was)/max(time.Since(b.at).Seconds(), 0.001))
}

// printStatus shows a status, with what has changed since the one before, if there is one.
func (p program) printStatus(r admin.Report, before *statusBefore) error {
	claim := string(r.Claim)
	if claim == "" {
		claim = "not claimed yet"
	}
	rows := [][]string{{"claim", claim}, {"lanes leased", fmt.Sprintf("%d of %d", r.Lanes, storage.Lanes)}}
	for _, line := range []struct {
		state storage.State
		of    func(admin.Report) int64
	}{
		{storage.StatePending, func(r admin.Report) int64 { return r.Pending }}, {storage.StateClaimed, func(r admin.Report) int64 { return r.Claimed }},
		{storage.StateScheduled, func(r admin.Report) int64 { return r.Scheduled }}, {storage.StateRetry, func(r admin.Report) int64 { return r.Retry }},
		{storage.StateError, func(r admin.Report) int64 { return r.Error }}, {storage.StateDone, func(r admin.Report) int64 { return r.Done }},
	} {
		count := fmt.Sprint(line.of(r))
		if slices.Contains(r.Estimated, line.state) {
			count = "about " + count
		}
		if slices.Contains(r.AtLeast, line.state) {
			count = "at least " + count
		}
		if slices.Contains(r.Absent, storage.GaugeCounts) {
			count = tooLong
		}
		row := []string{string(line.state), count}
		if before != nil {
			row = append(row, before.rate(r, line.state, line.of(before.Report), line.of(r)))
		}
		rows = append(rows, row)
	}
	age := func(gauge storage.Gauge, seconds float64) string {
		if slices.Contains(r.Absent, gauge) {
			return tooLong
		}
		age := time.Duration(seconds * float64(time.Second))
		if columns(p.stdout) > 0 {
			return elapsed(age)
		}
		return age.Round(time.Millisecond).String()
	}
	rows = append(rows, []string{"oldest pending", age(storage.GaugeOldestPending, r.OldestPendingSeconds)})
	if r.Retry > 0 {
		rows = append(rows, []string{"oldest retry", age(storage.GaugeOldestRetry, r.OldestRetrySeconds)})
	}
	if slices.Contains(r.Absent, storage.GaugeHeldKeys) {
		rows = append(rows, []string{"held keys", tooLong})
	} else if r.HeldKeys > 0 {
		rows = append(rows, []string{"held keys", fmt.Sprint(r.HeldKeys)}, []string{"oldest held key", age(storage.GaugeHeldKeys, r.OldestHeldSeconds)})
	}
	rows = append(rows, []string{"relays", fmt.Sprint(len(r.Relays))})
	if err := p.printTable(rows); err != nil {
		return err
	}
	if err := p.printControls(r.Controls); err != nil || len(r.Relays) == 0 {
		return err
	}
	rows = [][]string{{"\nRELAY", "HOST", "VERSION", "CLAIM", "LANES", "ALIVE", "LAST BEAT"}}
	for _, each := range r.Relays {
		alive := map[bool]string{true: "yes", false: "no"}[each.Alive]
		if each.Alive && each.Setup.Part == storage.Waits {
			alive = "waits"
		}
		rows = append(rows, []string{each.Name, each.Host, each.Version, string(each.Claim), fmt.Sprint(each.Lanes), alive, p.when(each.LastHeartbeat)})
	}
	return p.printTable(rows)
}
