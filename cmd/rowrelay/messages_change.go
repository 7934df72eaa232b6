package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay"
)

const requeueHelp = `Make parked messages (state error) due at once, with no attempts charged: those
with the given ids, or those that all of the given filters select, or with --all
every parked message of the table. They keep their ids, and so their place in
the order of their keys. Other states are not touched.`

const discardHelp = `Delete parked messages (state error) for good: those with the given ids, or
those that all of the given filters select, or with --all every parked message
of the table. Other states are not touched.`

func (p program) requeueCommand() *cobra.Command {
	return p.changeCommand("requeue [ID…]", "Deliver parked messages again", requeueHelp, "requeued", relay.Operator.Requeue)
}

func (p program) discardCommand() *cobra.Command {
	return p.changeCommand("discard [ID…]", "Delete parked messages", discardHelp, "discarded", relay.Operator.Discard)
}

type change func(relay.Operator, context.Context, relay.Filter) (int, error)

func (p program) changeCommand(use, short, long, done string, apply change) *cobra.Command {
	m := &messages{program: p}
	var all bool
	command := m.command(use, short, long, func(ctx context.Context, operator relay.Operator, filter relay.Filter) error {
		count, err := apply(operator, ctx, filter)
		if err != nil {
			return fmt.Errorf("%d messages were %s, then: %w", count, done, err)
		}
		return m.reportChange(filter, done, count)
	})
	m.filter.addFlags(command)
	command.Flags().BoolVar(&all, "all", false, "every parked message")
	command.PreRunE = func(command *cobra.Command, args []string) error {
		selects := m.filter.given() || len(args) > 0
		switch {
		case all && selects:
			return usagef("--all is every parked message: it can't be given with ids or filters")
		case !all && !selects:
			return usagef("say which messages: ids, filters, or --all for every parked one")
		case m.filter.state != "" && m.filter.state != string(relay.StateError):
			return usagef("--state %s: only parked messages, those in state error, can be %s", m.filter.state, done)
		}
		return nil
	}
	return command
}

// reportChange says how many; fewer than the ids that were given is a failure.
func (m *messages) reportChange(filter relay.Filter, done string, count int) error {
	var err error
	if m.json {
		err = m.printJSON(map[string]int{done: count})
	} else {
		err = m.print(fmt.Sprintf("%s %d\n", done, count))
	}
	if err == nil && count < len(filter.IDs) {
		err = fmt.Errorf("%d of %d messages were %s: the others aren't there, or aren't parked (state error)", count, len(filter.IDs), done)
	}
	return err
}
