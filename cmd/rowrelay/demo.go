package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const demoHelp = `See it work, with nothing to set up: a small shop writes orders to an embedded
SQLite file, each with a message in the same transaction, and rolls some of them
back. A relay delivers the messages to an HTTP endpoint that fails now and then.
At the end the promise is checked: every committed order arrived, no other did,
each customer's in their order, and a duplicate bears the message id of the first.`

// demo is the stage that the shop, the relay and the endpoint play on.
type demo struct {
	program
	orders   int
	lasts    time.Duration // of the shop
	patience time.Duration // with the relay, after the shop has closed
	keep     bool

	folder   string
	source   config.Source
	db       *sql.DB
	shop     *shop
	endpoint *endpoint
	began    time.Time
}

func (p program) demoCommand() *cobra.Command {
	d := &demo{program: p, patience: 30 * time.Second}
	command := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a shop, a relay and an endpoint in one process",
		Long:  demoHelp,
		Args:  noArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	command.Flags().IntVar(&d.orders, "orders", 400, "the shop takes this `number` of orders")
	command.Flags().DurationVar(&d.lasts, "lasts", 5*time.Second, "and this `duration` for it")
	command.Flags().BoolVar(&d.keep, "keep", false, "keep the database file, to look at it with rowrelay status and messages")
	return command
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.orders < 1 || d.orders > 100_000 || d.lasts < 0 || d.lasts > time.Hour {
		return usagef("--orders must be between 1 and 100000, and --lasts between 0s and 1h")
	}
	if err := d.setUp(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.tearDown()) }()
	d.say("A shop writes %d orders to %s, some of which it rolls back;", d.orders, filepath.Base(d.source.Database.Secret()))
	d.say("a relay delivers them to %s, which fails now and then.", d.endpoint.url())
	if err := d.play(ctx); err != nil {
		return err
	}
	return d.conclude(ctx)
}

// setUp makes the database, its tables and the endpoint.
func (d *demo) setUp(ctx context.Context) (err error) {
	if d.folder, err = os.MkdirTemp("", "rowrelay-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	if d.source, err = sourceOf("sqlite:"+filepath.Join(d.folder, "shop.db"), config.DefaultTable, config.ParseDatabase); err != nil {
		return err
	}
	if d.db, _, err = openDatabase(ctx, d.source.Database, true); err != nil {
		return err
	}
	steps, err := migrations.New(d.db, dialect.SQLite(), migrations.Options{})
	if err != nil {
		return err
	}
	if _, err := steps.Up(ctx); err != nil {
		return err
	}
	if d.shop, err = newShop(ctx, d.db, d.orders, d.lasts); err != nil {
		return err
	}
	d.endpoint, err = newEndpoint(d.lasts)
	d.began = time.Now()
	return err
}

func (d *demo) tearDown() error {
	var problems []error
	if d.endpoint != nil {
		problems = append(problems, d.endpoint.close())
	}
	problems = append(problems, d.db.Close())
	if d.keep {
		d.say("\nThe database is %s", d.source.Database)
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, os.RemoveAll(d.folder))...)
}

func (d *demo) say(format string, args ...any) { _ = d.print(fmt.Sprintf(format+"\n", args...)) } // run checks the output
