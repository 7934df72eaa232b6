// Package relays runs relays with their own pools, like a program that embeds relays.
package relays

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// Start opens a store on its own pool and runs a relay until stop is called. The function `stop` returns the error of
// Run.
func Start(ctx context.Context, d *table.Database, options relay.Options) (r *relay.Relay, stop func() error, err error) {
	pool, err := d.Pool()
	if err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.Open(ctx, pool, d.Dialect, sqlstore.Options{Reader: relaypgx.Reader{}})
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if r, err = relay.New(store, options); err != nil {
		return nil, nil, errors.Join(err, pool.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() error {
		cancel()
		return errors.Join(<-ended, pool.Close())
	}, nil
}

// UntilEmpty waits until no row is pending. Its queries put load on the database, so it should be
// called when few rows are left.
func UntilEmpty(ctx context.Context, d *table.Database) error {
	for {
		left, err := d.Pending(ctx)
		if err != nil || !left {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
