package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay"
)

// messages is the group of commands for an operator's work on messages.
type messages struct {
	program
	target target
	filter filterFlags
	json   bool
}

func (p program) messagesCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "messages",
		Short: "List, show, requeue or discard messages",
		Args:  cobra.ArbitraryArgs,
		RunE:  onlyCommands,
	}
	group.AddCommand(p.listCommand(), p.showCommand(), p.requeueCommand(), p.discardCommand())
	return group
}

// command makes one of the group's commands; work gets the filter of its flags
// and arguments.
func (m *messages) command(use, short, long string, work func(context.Context, relay.Operator, relay.Filter) error) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			filter, err := m.filter.read(args)
			if err != nil {
				return usage(err)
			}
			source, err := m.target.resolve(m.program, command)
			if err != nil {
				return err
			}
			return withOperator(command.Context(), source, func(operator relay.Operator) error {
				return work(command.Context(), operator, filter)
			})
		},
	}
	m.target.addFlags(command)
	jsonFlag(command, &m.json)
	return command
}

const listHelp = `List messages by id, lowest first: those with the given ids (the table's or the
messages'), or those that all of the given filters select. Payloads are not
shown; rowrelay messages show does.`

func (p program) listCommand() *cobra.Command {
	m := &messages{program: p}
	command := m.command("list [ID…]", "List messages", listHelp, m.list)
	command.PreRunE = func(command *cobra.Command, _ []string) error {
		if m.filter.limit < 1 {
			return usagef("--limit must be at least 1, not %d", m.filter.limit)
		}
		return nil
	}
	m.filter.addFlags(command)
	command.Flags().Int64Var(&m.filter.after, "after", 0, "only messages with an `id` above this one: the next page")
	command.Flags().IntVar(&m.filter.limit, "limit", 100, "at most this `number`")
	return command
}

func (m *messages) list(ctx context.Context, operator relay.Operator, filter relay.Filter) error {
	found, err := operator.List(ctx, filter)
	if err != nil {
		return fmt.Errorf("list messages: %w", err)
	}
	if m.json {
		shown := []messageJSON{}
		for _, info := range found {
			shown = append(shown, newMessageJSON(info))
		}
		return m.printJSON(shown)
	}
	rows := [][]string{{"ID", "STATE", "TOPIC", "KEY", "ATTEMPTS", "CREATED", "MESSAGE ID", "ERROR"}}
	for _, info := range found {
		rows = append(rows, []string{
			fmt.Sprint(info.ID), string(info.State), cell(info.Message.Topic, 40), cell(info.Message.Key, 40),
			fmt.Sprint(info.Attempts), shownTime(info.CreatedAt), info.Message.ID, cell(info.LastError, 60),
		})
	}
	return m.printTable(rows)
}

func (p program) showCommand() *cobra.Command {
	m := &messages{program: p}
	command := m.command("show ID", "Show all of a message, its payload included", "", m.show)
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s needs exactly one id: the table's or the message's", command.CommandPath())
		}
		return nil
	}
	return command
}

func (m *messages) show(ctx context.Context, operator relay.Operator, filter relay.Filter) error {
	found, err := operator.List(ctx, filter)
	if err != nil {
		return fmt.Errorf("read message %s: %w", filter.IDs[0], err)
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no message %s: rowrelay messages list shows which there are", filter.IDs[0])
	}
	if m.json {
		return m.printJSON(newFullMessageJSON(found[0]))
	}
	return m.printMessage(found[0])
}
