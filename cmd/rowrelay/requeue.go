package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const requeueHelp = `Make parked messages (state error) due immediately, and reset their attempts to 0. Select
them by ids, by filters (which must all match), or with --all. Messages in other states are
not changed. A requeued message keeps its id, but later messages of its key may have been
sent before it. A message that holds its key (on_park: hold) is sent before the key's other
messages.

The command requeues the messages that are parked when it starts: first those that hold
their keys, then the others, each group by id. It requeues --rate messages per second and
prints its progress on stderr. It can be interrupted and run again for the rest. It reads
all parked messages once, without payloads, which takes about 100 MB of memory for a
million.

With on_park: continue, later messages of a key may already have been delivered. The command
prints how many of the requeued messages were overtaken in this way. To count them, it reads
at most 1,000,000 delivered messages, beginning with the first that was written after the
first requeued one. With --in-order it reads all of these delivered messages, leaves the
overtaken messages parked and lists them. It doesn't know about messages that the retention
has deleted or that are being sent at this moment.

--to sends the messages to another sink. This sink must exist in the configuration of
--config, or without --config in a live relay. Two kinds of messages aren't changed: those
that hold their keys (skip them first), and those that other sinks have also parked or still
have to send.

--sink may name a sink that is missing in all live relays and in the configuration, because
it was renamed or misspelt. Then --to also moves messages in other states, if they wait for
only that sink. Scheduled messages keep their time; the others are due immediately.`

// requeue holds the flags of the command, which requeues parked messages in steps.
type requeue struct {
	*messages
	rate    int    // messages per second; 0 for no limit
	to      string // send to this sink instead of the messages' own
	inOrder bool   // leave overtaken messages parked
}

func (p program) requeueCommand() *cobra.Command {
	r := &requeue{messages: &messages{program: p}}
	command := r.command("requeue [ID…]", "Deliver parked messages again", requeueHelp, r.run)
	r.mustSelect(command, requeued, storage.StateError)
	flags := command.Flags()
	flags.BoolVar(&r.inOrder, "in-order", false, "leave messages parked if later messages of their keys were delivered")
	flags.IntVar(&r.rate, "rate", 1000, "messages to requeue per second; 0 for no limit")
	flags.StringVar(&r.to, "to", "", "send the messages to this `sink` instead of their own")
	selects := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if r.rate < 0 {
			return usagef("--rate must be at least 0, not %d", r.rate)
		}
		if err := r.target.checkSink(r.program, r.to); err != nil {
			return err
		}
		return selects(command, args)
	}
	return command
}

var requeued = change{action: operate.Requeue, done: "requeued"}

func (r *requeue) run(ctx context.Context, operator storage.Operator, filter storage.Filter) error {
	if err := r.target.checkLivingSink(ctx, operator, r.to); err != nil {
		return err
	}
	within := int64(operate.FirstDelivered)
	if r.inOrder {
		within = operate.EveryDelivered
	}
	bulk := operate.Bulk{Action: operate.Requeue, Filter: filter, Rate: r.rate, To: r.to, InOrder: r.inOrder, Within: within}
	if r.to != "" {
		gone, err := r.target.isGone(ctx, r.program, operator, filter.Sink)
		if err != nil {
			return err
		}
		bulk.Waiting = gone && filter.State == "" && !filter.Holds
	}
	p, done, failed := r.carryOut(ctx, operator, bulk, requeued)
	if r.dryRun && failed == nil {
		return r.printPlan(p, requeued.done)
	}
	if err := r.report(p, done); err != nil || failed != nil {
		return cmp.Or(failed, err)
	}
	if found := p.Left.Len() + done; r.limit == 0 && found < len(filter.IDs) {
		return unchanged(filter, done, requeued.done, "parked (state error)")
	}
	return nil
}

// requeueJSON is the output of a requeue as JSON.
type requeueJSON struct {
	Requeued  int     `json:"requeued"`
	Overtaken int     `json:"overtaken,omitempty"` // messages that later messages of their keys have overtaken
	Left      []int64 `json:"left,omitempty"`      // ids of overtaken messages that stay parked
}

func (r *requeue) report(p *operate.Plan, done int) error {
	if r.json {
		report := requeueJSON{Requeued: done, Overtaken: p.Overtaken}
		report.Left = slices.Collect(p.Left.All())
		return r.printJSON(report)
	}
	if p.Left.Len() > 0 {
		var named strings.Builder
		for _, row := range p.Named {
			fmt.Fprintf(&named, "  %d, key %s\n", row.ID, cell(row.Key, 60))
		}
		if more := p.Left.Len() - len(p.Named); more > 0 {
			fmt.Fprintf(&named, "  and %d more\n", more)
		}
		_, _ = fmt.Fprintf(r.stderr, "%d stay parked, because later messages of their keys were delivered:\n%s", p.Left.Len(), printable(named.String()))
	} else if p.Overtaken > 0 {
		_, _ = fmt.Fprintf(r.stderr, "overtaken: %d of these messages, because later messages of their keys had been delivered (--in-order leaves overtaken messages parked)\n", p.Overtaken)
	}
	if p.More {
		_, _ = fmt.Fprintf(r.stderr, "more messages match: run the command again to continue\n")
	}
	if stay := p.Unfit + p.Count - done; r.to != "" && stay > 0 {
		_, _ = fmt.Fprintf(r.stderr, "%d stay as they are: they hold their keys, or have rows for other sinks that are parked or waiting\n", stay)
	}
	return r.print(fmt.Sprintf("requeued %d\n", done))
}

// printPlan prints the result of a --dry-run.
func (m *messages) printPlan(p *operate.Plan, done string) error {
	if m.json {
		return m.printJSON(map[string]any{"parked": p.Count, "overtaken": p.Overtaken, "left": p.Left.Len() + p.Unfit, "topics": p.Topics})
	}
	rows := [][]string{{"TOPIC", "SINKS", "MESSAGES"}}
	for _, each := range p.Topics {
		rows = append(rows, []string{cell(each.Topic, 60), cell(each.Sinks, 60), strconv.Itoa(each.Parked)})
	}
	rows = append(rows, []string{"(all)", "", strconv.Itoa(p.Count)})
	dropEmptyColumn(rows, "SINKS")
	if err := m.printTable(rows); err != nil {
		return err
	}
	more := map[bool]string{true: "\nmore messages match: another run would change them"}[p.More]
	if p.Overtaken > 0 {
		more += fmt.Sprintf("\novertaken by later messages of their keys: %d", p.Overtaken)
	}
	if stay := p.Left.Len() + p.Unfit; stay > 0 {
		more += fmt.Sprintf("\n%d would stay as they are", stay)
	}
	return m.print(more + fmt.Sprintf("\n%d would be %s; nothing was changed\n", p.Count, done))
}
