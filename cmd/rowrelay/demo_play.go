package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// play lets the shop and the relay work until all is delivered.
func (d *demo) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	played, err := d.newRelay(ctx)
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

// watch shows the progress until the shop has closed and nothing waits.
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
			return fmt.Errorf("the relay wasn't done %v after the shop had closed", d.patience)
		case <-tick.C:
			waiting, err := d.progress(ctx)
			if err != nil || closed && waiting == 0 {
				return err
			}
		}
	}
}

// progress prints a line and returns how many messages wait.
func (d *demo) progress(ctx context.Context) (int64, error) {
	var waiting int64
	err := withOperator(ctx, d.source, func(operator relay.Operator) error {
		status, err := operator.Status(ctx)
		for state, count := range status.Counts {
			if state != relay.StateDone {
				waiting += count
			}
		}
		return err
	})
	committed, rolledBack := d.shop.counts()
	arrived, failures := d.endpoint.counts()
	d.say("%5.1f s   committed %4d   rolled back %4d   arrived %4d   endpoint failed %3d times   waiting %4d",
		time.Since(d.began).Seconds(), committed, rolledBack, arrived, failures, waiting)
	return waiting, err
}
