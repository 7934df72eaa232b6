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

const requeueHelp = `Make parked messages (state error) due at once, with no attempts charged: those
with the given ids, or those that all of the given filters select, or with --all
every parked message of the table. They keep their ids, and so their place in
the order of their keys: one that holds its key (on_park: hold) goes first, and
the key goes on behind it. Other states are not touched.

It requeues what is parked when it begins, those first that hold their keys, then
the others, by id, at a --rate that the sinks bear, with its progress on stderr. It
may be interrupted, and is run again for the rest. It reads all parked messages once,
without their payloads: about 100 MB of memory for a million.

Where keys are not held (on_park: continue), later messages of a key may have been
delivered by now: how many were so overtaken is said. For this the first 1,000,000
delivered messages are looked through that were written after the first of those
that are requeued. With --in-order it is all of them, and what was overtaken stays
parked, and is named. Not known are messages that the retention has deleted, and
those that are being sent just now.

With --to they go to that sink, which the configuration of --config must have, or
without it a living relay. Not moved are those that hold their keys (skip these first),
and those of which another part is parked or waits, for other sinks. With --to and a
--sink that neither a living relay nor the configuration has, as it was renamed or
misspelt, messages of any state that wait for that sink alone go there, too: they are
due when they were, or at once.`

// requeue requeues parked messages in steps.
type requeue struct {
	*messages
	rate    int    // messages a second; 0 is no bound
	to      string // this sink instead of their own
	inOrder bool   // those that were overtaken stay parked
}

func (p program) requeueCommand() *cobra.Command {
	r := &requeue{messages: &messages{program: p}}
	command := r.command("requeue [ID…]", "Deliver parked messages again", requeueHelp, r.run)
	r.mustSelect(command, requeued, storage.StateError)
	flags := command.Flags()
	flags.BoolVar(&r.inOrder, "in-order", false, "leave parked what later messages of its key have overtaken")
	flags.IntVar(&r.rate, "rate", 1000, "messages to requeue per second; 0 for no limit")
	flags.StringVar(&r.to, "to", "", "send them to this `sink`, and not to theirs")
	selects := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if r.rate < 0 {
			return usagef("--rate must not be negative, not %d", r.rate)
		}
		if err := r.target.checkSink(r.program, r.to); err != nil {
			return err
		}
		return selects(command, args)
	}
	return command
}

// requeued is what the command does.
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
		return fmt.Errorf("%d of %d messages were requeued: the others aren't there, or aren't parked (state error)", done, len(filter.IDs))
	}
	return nil
}

// requeueJSON is what a requeue has to say.
type requeueJSON struct {
	Requeued  int     `json:"requeued"`
	Overtaken int     `json:"overtaken,omitempty"` // later messages of their keys were delivered
	Left      []int64 `json:"left,omitempty"`      // such messages that stay parked
}

func (r *requeue) report(p *operate.Plan, done int) error {
	if r.json {
		told := requeueJSON{Requeued: done, Overtaken: p.Overtaken}
		told.Left = slices.Collect(p.Left.All())
		return r.printJSON(told)
	}
	if p.Left.Len() > 0 {
		var named strings.Builder
		for _, row := range p.Named {
			fmt.Fprintf(&named, "  %d, key %s\n", row.ID, cell(row.Key, 60))
		}
		if more := p.Left.Len() - len(p.Named); more > 0 {
			fmt.Fprintf(&named, "  and %d more\n", more)
		}
		_, _ = fmt.Fprintf(r.stderr, "%d stay parked, as later messages of their keys were delivered:\n%s", p.Left.Len(), printable(named.String()))
	} else if p.Overtaken > 0 {
		_, _ = fmt.Fprintf(r.stderr, "%d of these messages were overtaken: later ones of their keys were delivered (--in-order leaves such messages parked)\n", p.Overtaken)
	}
	if p.More {
		_, _ = fmt.Fprintf(r.stderr, "there are more: run it again to go on\n")
	}
	if stay := p.Unfit + p.Count - done; r.to != "" && stay > 0 {
		_, _ = fmt.Fprintf(r.stderr, "%d stay as they are: they hold their keys, or other parts of them are parked or wait\n", stay)
	}
	return r.print(fmt.Sprintf("requeued %d\n", done))
}

// printPlan says what would be done.
func (m *messages) printPlan(p *operate.Plan, done string) error {
	if m.json {
		return m.printJSON(map[string]any{"parked": p.Count, "overtaken": p.Overtaken, "left": p.Left.Len() + p.Unfit, "topics": p.Topics})
	}
	rows := [][]string{{"TOPIC", "SINKS", "MESSAGES"}}
	for _, each := range p.Topics {
		rows = append(rows, []string{cell(each.Topic, 60), cell(each.Sinks, 60), strconv.Itoa(each.Parked)})
	}
	rows = append(rows, []string{"(all)", "", strconv.Itoa(p.Count)})
	if err := m.printTable(rows); err != nil {
		return err
	}
	more := map[bool]string{true: "\nthere are more, for another time"}[p.More]
	if p.Overtaken > 0 {
		more += fmt.Sprintf("\n%d were overtaken by later messages of their keys", p.Overtaken)
	}
	if stay := p.Left.Len() + p.Unfit; stay > 0 {
		more += fmt.Sprintf("\n%d would stay as they are", stay)
	}
	return m.print(more + fmt.Sprintf("\n%d would be %s; nothing was changed\n", p.Count, done))
}
