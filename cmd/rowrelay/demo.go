package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const demoHelp = `See rowrelay work, without any setup. A small shop writes orders to an embedded
database, each with a message in the same transaction, and rolls some of them back. A
relay delivers the messages to an HTTP endpoint that fails now and then.

At the end the demo checks rowrelay's promise: every committed order has arrived, no
order that was rolled back has arrived, each customer's orders arrived in order, and each
duplicate has the message id of its original.`

// demo runs the shop, the relay and the endpoint.
type demo struct {
	program
	orders   int
	lasts    time.Duration // how long the shop is open
	patience time.Duration // how long the relay may take after the shop has closed
	keep     bool

	folder   string
	source   config.Source
	db       *sql.DB
	dialect  dialect.Dialect
	shop     *shop
	endpoint *endpoint
	began    time.Time
}

func (p program) demoCommand() *cobra.Command {
	d := &demo{program: p, patience: 30 * time.Second}
	command := &cobra.Command{
		Use:   "demo",
		Short: "See rowrelay work: a shop, a relay and an endpoint in one process",
		Long:  demoHelp,
		Args:  noArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	command.Flags().IntVar(&d.orders, "orders", 400, "the shop takes this `number` of orders")
	command.Flags().DurationVar(&d.lasts, "lasts", 5*time.Second, "the shop is open for this `duration`")
	command.Flags().BoolVar(&d.keep, "keep", false, "keep the database file, for rowrelay status and rowrelay messages")
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
	d.source.Table = config.DefaultTable
	if d.source.Database, err = config.ParseDatabase(fileURL(filepath.Join(d.folder, "shop.db"))); err != nil {
		return err
	}
	if d.db, d.dialect, err = openDatabase(ctx, d.source.Database, pool{create: true}); err != nil {
		return err
	}
	steps, err := migrations.New(d.db, d.dialect, migrations.Options{})
	if err != nil {
		return err
	}
	if _, err := steps.Up(ctx); err != nil {
		return err
	}
	if d.shop, err = newShop(ctx, d.db, d.dialect, d.orders, d.lasts); err != nil {
		return err
	}
	d.endpoint, err = newEndpoint(d.lasts)
	d.began = time.Now()
	return err
}

// play runs the shop and the relay until all messages are delivered. The relay has
// shorter retry delays than the defaults.
func (d *demo) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store, err := openStore(ctx, d.source, d.db, d.dialect)
	if err != nil {
		return err
	}
	sink, err := d.kinds.FromURL(d.endpoint.url())
	if err != nil {
		return err
	}
	soon := relay.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	played, err := relay.New(store, relay.Options{
		Name:   "demo",
		Sinks:  map[string]relay.SinkOptions{"endpoint": {Sink: sink, Batch: 20, Backoff: soon, BreakerBackoff: soon, MaxAttempts: -1}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	relayed, sold := make(chan error, 1), make(chan error, 1)
	go func() { relayed <- played.Run(ctx) }()
	go func() { sold <- d.shop.sell(ctx, played.Wake) }()
	watchErr := d.watch(ctx, sold)
	cancel()
	return errors.Join(watchErr, <-relayed)
}

// watch prints the progress until the shop has closed and no message waits.
func (d *demo) watch(ctx context.Context, sold <-chan error) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d.lasts + d.patience)
	closed := false
	for {
		select {
		case err := <-sold:
			if err != nil {
				return fmt.Errorf("sell: %w", err)
			}
			closed, sold = true, nil
		case <-deadline:
			return fmt.Errorf("the relay has not delivered all messages within %v after the shop closed", d.patience)
		case <-tick.C:
			waiting, known, err := d.progress(ctx)
			if err != nil || closed && known && waiting == 0 {
				return err
			}
		}
	}
}

// progress prints a line and returns the number of messages that wait, if it could be determined in time.
func (d *demo) progress(ctx context.Context) (waiting int64, known bool, err error) {
	err = withOperator(ctx, d.source, func(operator storage.Operator) error {
		status, err := operator.Status(ctx)
		waiting, known = undelivered(status), status.Has(storage.GaugeCounts)
		return err
	})
	committed, rolledBack := d.shop.counts()
	arrived, failures := d.endpoint.counts()
	d.say("%5.1f s   committed %4d   rolled back %4d   arrived %4d   endpoint failed %3d times   waiting %4d",
		time.Since(d.began).Seconds(), committed, rolledBack, arrived, failures, waiting)
	return waiting, known, err
}

// conclude checks the promise and prints the result.
func (d *demo) conclude(ctx context.Context) error {
	book, err := d.shop.book(ctx)
	if err != nil {
		return err
	}
	v := judge(book, d.endpoint.taken())
	_, rolledBack := d.shop.counts()
	_, failures := d.endpoint.counts()
	d.say("\nThe shop committed %d orders and rolled %d back; the endpoint failed %d times.", v.committed, rolledBack, failures)
	if len(v.broken) > 0 {
		for _, line := range v.broken {
			d.say("  broken: %s", line)
		}
		return errors.New("the promise was broken")
	}
	d.say("  delivered    all %d committed orders, none of those rolled back", v.arrived)
	d.say("  order        kept for each of %d customers", v.customers)
	d.say("  duplicates   %d, each with the message id of the first", v.duplicates)
	d.say("The promise holds.")
	return nil
}

// verdict is the result of judge.
type verdict struct {
	committed, arrived, duplicates, customers int
	broken                                    []string
}

// judge compares the shop's record with the orders that arrived, which are listed in order of arrival.
func judge(book map[string]int, arrivals []arrival) verdict {
	v := verdict{customers: len(book)}
	for _, count := range book {
		v.committed += count
	}
	last, seen := map[string]int{}, map[string]order{}
	for _, a := range arrivals {
		if first, again := seen[a.id]; again {
			v.duplicates++
			v.breaks(first != a.order, "message %s arrived twice with different orders", a.id)
			continue
		}
		seen[a.id] = a.order
		v.arrived++
		v.breaks(a.id == "", "an order of %s arrived without a message id", a.order.Customer)
		v.breaks(a.order.Number < 1 || a.order.Number > book[a.order.Customer], "order %d of %s arrived, which was never committed", a.order.Number, a.order.Customer)
		v.breaks(a.order.Number != last[a.order.Customer]+1, "order %d of %s arrived after order %d", a.order.Number, a.order.Customer, last[a.order.Customer])
		last[a.order.Customer] = a.order.Number
	}
	for customer, count := range book {
		v.breaks(last[customer] != count, "%s's last order to arrive is %d of %d", customer, last[customer], count)
	}
	v.breaks(v.arrived != v.committed, "%d orders were committed, and %d arrived", v.committed, v.arrived)
	return v
}

func (v *verdict) breaks(broken bool, format string, args ...any) {
	if broken {
		v.broken = append(v.broken, fmt.Sprintf(format, args...))
	}
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

func (d *demo) say(format string, args ...any) { _ = d.print(fmt.Sprintf(format+"\n", args...)) } // program.run checks whether a write failed
