package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// Delivery is a message that a Consumer has claimed. It is answered once, with
// Done, Retry or Park; each returns [ErrFenced] if the claim is another's by
// then, and the message may be delivered again.
type Delivery struct {
	sinks.Message

	// Until is when the claim ends, by this process's clock.
	Until time.Time

	consumer *Consumer
	row      Row
	token    string
}

// Done marks the message delivered; the receipt, which may be empty, is kept
// with it.
func (d *Delivery) Done(ctx context.Context, receipt string) error {
	return d.settle(ctx, StateDone, 0, "", shorten(receipt, 255))
}

// Retry gives the message up until its next attempt, after a back-off; after
// the last attempt it is parked. The reason is kept with the message.
func (d *Delivery) Retry(ctx context.Context, reason string) error {
	attempts, limit := d.row.Attempts+1, d.consumer.options.MaxAttempts
	if limit > 0 && attempts >= limit {
		return d.settle(ctx, StateError, 0, describe(sinks.Fail(sinks.Reject, sinks.ReasonExhausted, reason)), "")
	}
	return d.settle(ctx, StateRetry, d.consumer.options.Backoff.draw(attempts), shorten(reason, 1000), "")
}

// Park puts the message aside for an operator.
func (d *Delivery) Park(ctx context.Context, reason string) error {
	return d.settle(ctx, StateError, 0, describe(sinks.Fail(sinks.Reject, sinks.ReasonRefused, reason)), "")
}

// Extend lets the claim end this long from now.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	now := time.Now()
	kept, err := d.consumer.store.Extend(ctx, d.token, []int64{d.row.ID}, by)
	if err != nil {
		return fmt.Errorf("extend the claim of message %s: %w", d.ID, err)
	}
	if len(kept) == 0 {
		return fmt.Errorf("extend the claim of message %s: %w", d.ID, ErrFenced)
	}
	d.Until = now.Add(by)
	return nil
}

func (d *Delivery) settle(ctx context.Context, state State, delay time.Duration, problem, receipt string) error {
	s := Settlement{
		ID: d.row.ID, Lane: d.row.Lane, MessageID: d.row.Message.ID, Token: d.token, State: state, Attempts: d.row.Attempts + 1, Crashes: d.row.Crashes,
		Delay: delay, Error: problem, Receipt: receipt,
	}
	if state == StateScheduled {
		s.Attempts = d.row.Attempts
	}
	keep := d.consumer.options.Retention != KeepNothing
	counts, err := d.consumer.store.Settle(ctx, d.consumer.options.Name, keep, []Settlement{s})
	if err != nil {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, state, err)
	}
	if counts.Changed == 0 {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, state, ErrFenced)
	}
	return nil
}
