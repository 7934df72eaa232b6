package main

import (
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

Up to 100,000 of a kind are counted. Where there are more, the count says "about", as
the database estimates it, or "at least". What the database doesn't tell in 2 s is left out, and
the rest is shown.`

// tooLong stands for what the database didn't tell in time.
const tooLong = "unknown: the database took too long"

func (p program) statusCommand() *cobra.Command {
	var t target
	var asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Count messages by state, and list relays and pauses",
		Long:  statusHelp,
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			source, err := t.resolve(p, command)
			if err != nil {
				return err
			}
			return withOperator(command.Context(), source, func(operator storage.Operator) error {
				status, err := operator.Status(command.Context())
				if err != nil {
					return fmt.Errorf("count the messages of %s: %w", source.Table, err)
				}
				if asJSON {
					return p.printJSON(admin.NewReport(status))
				}
				return p.printStatus(admin.NewReport(status))
			})
		},
	}
	t.addFlags(command)
	jsonFlag(command, &asJSON)
	return command
}

func (p program) printStatus(r admin.Report) error {
	claim := string(r.Claim)
	if claim == "" {
		claim = "not claimed yet"
	}
	rows := [][]string{{"claim", claim}, {"lanes leased", fmt.Sprintf("%d of %d", r.Lanes, storage.Lanes)}}
	for _, line := range []struct {
		state storage.State
		count int64
	}{
		{storage.StatePending, r.Pending}, {storage.StateClaimed, r.Claimed}, {storage.StateScheduled, r.Scheduled},
		{storage.StateRetry, r.Retry}, {storage.StateError, r.Error}, {storage.StateDone, r.Done},
	} {
		count := fmt.Sprint(line.count)
		if slices.Contains(r.Estimated, line.state) {
			count = "about " + count
		}
		if slices.Contains(r.AtLeast, line.state) {
			count = "at least " + count
		}
		if slices.Contains(r.Absent, storage.GaugeCounts) {
			count = tooLong
		}
		rows = append(rows, []string{string(line.state), count})
	}
	age := func(gauge storage.Gauge, seconds float64) string {
		if slices.Contains(r.Absent, gauge) {
			return tooLong
		}
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
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
		rows = append(rows, []string{each.Name, each.Host, each.Version, string(each.Claim), fmt.Sprint(each.Lanes), alive, shownTime(each.LastHeartbeat)})
	}
	return p.printTable(rows)
}
