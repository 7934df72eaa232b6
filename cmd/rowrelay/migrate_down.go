package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/config"
)

const migrateDownHelp = `Take the last migration back. Taking back the first one drops the tables, so
that is refused while there are messages that were not delivered, unless
--discard-messages is given.`

func (p program) migrateDownCommand() *cobra.Command {
	m := &migrate{program: p}
	var discard bool
	command := m.command("down", "Take the last migration back", migrateDownHelp, func(ctx context.Context, source config.Source) error {
		return m.on(ctx, source, false, func(steps *migrations.Migrations) error {
			return m.down(ctx, source, steps, discard)
		})
	})
	command.Flags().BoolVar(&discard, "discard-messages", false, "also with undelivered messages, which are then lost")
	jsonFlag(command, &m.json)
	return command
}

func (m *migrate) down(ctx context.Context, source config.Source, steps *migrations.Migrations, discard bool) error {
	all, err := steps.Status(ctx)
	if err != nil {
		return err
	}
	applied := func(each migrations.Migration) bool { return each.Applied }
	if slices.ContainsFunc(all, applied) {
		if err := refuseLiving(ctx, source); err != nil {
			return err
		}
	}
	if !discard && slices.ContainsFunc(all, applied) {
		if err := refuseUndelivered(ctx, source); err != nil {
			return err
		}
	}
	taken, err := steps.Down(ctx)
	if err != nil {
		return err
	}
	var list []migrations.Migration
	if taken != nil {
		list = append(list, *taken)
	}
	return m.report(source, "taken back", list, "there was no migration of "+source.Table+" to take back")
}
