package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay"
)

const migrateDownHelp = `Take the last migration back. Taking back the first one drops the tables, so
that is refused while there are messages that were not delivered, unless
--discard-messages is given. With --inbox nothing is refused: without its table
a consumer recognises no message that comes again.`

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
	if !m.inbox {
		if err := refuseDown(ctx, source, steps, discard); err != nil {
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

// refuseDown finds what forbids to drop the tables. Where they are gone meanwhile
// another process was quicker, and there is nothing to forbid.
func refuseDown(ctx context.Context, source config.Source, steps *migrations.Migrations, discard bool) error {
	if there, err := anyApplied(ctx, steps); err != nil || !there {
		return err
	}
	refused := forbidden(ctx, source, discard)
	for tries := 1; tries < 5 && errors.Is(refused, relay.ErrBusy); tries++ {
		refused = forbidden(ctx, source, discard) // the quicker one was dropping the tables
	}
	there, err := anyApplied(ctx, steps)
	if errors.Is(refused, relay.ErrNoSchema) || err == nil && !there {
		return nil
	}
	return refused
}

func anyApplied(ctx context.Context, steps *migrations.Migrations) (bool, error) {
	all, err := steps.Status(ctx)
	return slices.ContainsFunc(all, func(each migrations.Migration) bool { return each.Applied }), err
}

func forbidden(ctx context.Context, source config.Source, discard bool) error {
	if err := refuseLiving(ctx, source); err != nil || discard {
		return err
	}
	return refuseUndelivered(ctx, source)
}
