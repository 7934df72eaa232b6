package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// ConsumerOptions say how a [Consumer] claims. All have defaults.
type ConsumerOptions struct {
	// Name identifies the consumer among those of its table. Defaults as in Options.
	Name string

	// Version is shown in the table of relays. Defaults to "".
	Version string

	// Topics limits the claim to some topics; none means all. Pick says which
	// messages are taken first; defaults to Oldest.
	Topics []string
	Pick   storage.Pick

	// Lease is how long a delivery may take before others may claim its
	// message, unless it is extended. Defaults to 30 s; at least 1 s.
	Lease time.Duration

	// Poll is the time between two looks while Receive waits. Defaults to
	// 200 ms; at least 1 ms.
	Poll time.Duration

	// MaxAttempts is the number of charged attempts after which Retry parks
	// the message. Defaults to 20; negative means never.
	MaxAttempts int

	// Backoff bounds the wait before the next attempt, as in SinkOptions.
	Backoff Backoff

	// ExpireAfter and OnExpire say when a message is too old to be received, and what
	// becomes of it, as in [Route]. Default to never, and ParkExpired.
	ExpireAfter time.Duration
	OnExpire    OnExpire

	// Retention is how long delivered messages are kept, as in Options: 24 h by
	// default; KeepNothing deletes them when they are answered. The consumer
	// deletes older ones now and then while it receives.
	Retention time.Duration

	// Observer is told of messages that have expired, as of the sink "consumer", and of
	// nothing else. Defaults to [NoObserver].
	Observer Observer

	// Logger receives the same, one line in ten seconds. Defaults to slog.Default.
	Logger *slog.Logger
}

// Consumer claims messages for an application that would rather ask for them
// than be called. It claims by rows: there is no order, and any number of
// consumers, and of relays that claim by rows, share a table. Its methods may
// be called by several goroutines at the same time.
type Consumer struct {
	store   storage.Store
	options ConsumerOptions
	routes  *router // one for all topics, with what expires
	wake    waker

	logLimiter logLimiter

	mu        sync.Mutex
	clock     databaseClock
	alone     bool              // no other relay or consumer lives
	inForce   []storage.Control // what operators have put in force, as it was heard last
	heard     time.Time
	stored    bool
	reclaimed time.Time
	beaten    time.Time
	purged    time.Time
}

// NewConsumer makes a consumer over a store.
func NewConsumer(store storage.Store, options ConsumerOptions) (*Consumer, error) {
	if isNil(store) {
		return nil, errors.New("consumer: there is no store: give what sqlstore.Open returned, once its error was looked at")
	}
	o := options
	asRelay, err := Options{
		Name: o.Name, Claim: storage.ByRows, Pick: o.Pick, Lease: cmp.Or(o.Lease, 30*time.Second), Poll: o.Poll, Retention: o.Retention,
		Observer: o.Observer, Logger: o.Logger,
	}.withDefaults()
	o.Name, o.Pick, o.Lease, o.Poll, o.Retention = asRelay.Name, asRelay.Pick, asRelay.Lease, asRelay.Poll, asRelay.Retention
	o.Observer, o.Logger = asRelay.Observer, asRelay.Logger
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 20)
	var backoffErr error
	o.Backoff, backoffErr = o.Backoff.withDefaults("backoff", 5*time.Minute)
	routes, routesErr := newRouter([]Route{{Topic: "*", ExpireAfter: o.ExpireAfter, OnExpire: o.OnExpire}}, []string{""})
	if err := errors.Join(err, backoffErr, routesErr); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return &Consumer{store: store, options: o, routes: routes, wake: make(waker, 1)}, nil
}

// Wake makes a waiting Receive look for messages now.
func (c *Consumer) Wake() {
	if c.notMade() == nil {
		c.wake.wake()
	}
}

// notMade is an error if NewConsumer didn't make it.
func (c *Consumer) notMade() error {
	if c == nil || c.store == nil {
		return errors.New("the Consumer is nil or empty: use what NewConsumer returned, once its error was looked at")
	}
	return nil
}

// Receive claims up to n messages, and no more of them than 8 MiB of payload or one
// message, and waits until there is one or the context
// ends; then it returns the context's error, such as context.DeadlineExceeded.
// Each delivery must be answered with Done, Retry or Park before its lease ends:
// after that others may claim its message.
func (c *Consumer) Receive(ctx context.Context, n int) ([]*Delivery, error) {
	if err := c.notMade(); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("receive %d messages: ask for one at least", n)
	}
	for polled := false; ; {
		deliveries, err := c.claim(ctx, n, polled)
		if err != nil || len(deliveries) > 0 {
			return deliveries, err
		}
		timer := time.NewTimer(c.options.Poll)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.wake:
			polled = false
		case <-timer.C:
			polled = true // looked for no other reason than that it is time to
		}
		if timer.Stop(); err != nil {
			return nil, err
		}
	}
}

func (c *Consumer) claim(ctx context.Context, n int, polled bool) ([]*Delivery, error) {
	clock, paused, standsDown, err := c.live(ctx)
	if err != nil || standsDown {
		return nil, err
	}
	token := fmt.Sprintf("%s/%016x", c.options.Name, rand.Uint64())
	claimed := time.Now()
	rows, err := c.store.Claim(ctx, storage.ClaimRequest{
		Relay: c.options.Name, Token: token, TTL: c.options.Lease, Limit: n, MaxBytes: readBytes, Pick: c.options.Pick, Topics: c.options.Topics, Except: paused,
		Unprompted: polled,
	})
	if err != nil {
		return nil, fmt.Errorf("claim messages: %w", err)
	}
	var deliveries []*Delivery
	var problems []error
	for _, row := range rows {
		var err error
		d := &Delivery{Message: (&item{row: row}).message(), Until: claimed.Add(c.options.Lease), consumer: c, row: row, token: token}
		expires, by := c.routes.expiryOf(&row)
		switch { // not every row is for the application: not yet, or never
		case row.Later:
			err = d.settle(ctx, storage.StateScheduled, 0, 0, "", "")
		case clock.passed(expires):
			become, problem := by.expire(&row)
			if err = d.settle(ctx, become, 0, 0, problem, ""); err == nil {
				by.reportExpired(c.options.Observer, c.options.Logger, &c.logLimiter, c.options.Name, "consumer", &row, "")
			}
		case row.Malformed != "":
			err = d.settle(ctx, storage.StateError, 1, 0, describe(sinks.Fail(sinks.Reject, sinks.ReasonInvalid, row.Malformed)), "")
		default:
			deliveries = append(deliveries, d)
		}
		if err != nil && !errors.Is(err, storage.ErrFenced) {
			problems = append(problems, err)
		}
	}
	if len(deliveries) > 0 { // these are the application's now; a row that couldn't be settled is free again when its claim ends
		return deliveries, nil
	}
	return nil, errors.Join(problems...)
}

// live does now and then what a relay does all the time: it shows that it
// lives, frees what others claimed and never answered, and asks which topics are paused, and whether it is to leave its part
// to others. It returns these, and the database's clock.
func (c *Consumer) live(ctx context.Context) (clock databaseClock, paused []string, standsDown bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stored {
		if err := c.store.SetClaimMode(ctx, storage.ByRows); err != nil {
			return clock, nil, false, fmt.Errorf("start to claim by rows: %w", err)
		}
		c.stored = true
	}
	now := time.Now()
	if now.Sub(c.beaten) >= c.options.Lease/3 {
		host, _ := os.Hostname()
		members, err := c.store.Heartbeat(ctx, storage.Identity{Name: c.options.Name, Host: host, Version: c.options.Version, Claim: storage.ByRows}, c.options.Lease)
		if err != nil {
			return clock, nil, false, fmt.Errorf("show that the consumer lives: %w", err)
		}
		c.beaten, c.clock, c.alone = now, databaseClock{members.Now, time.Now()}, len(members.Relays) < 2
	}
	if now.Sub(c.reclaimed) >= reclaimInterval {
		if _, err := c.store.Reclaim(ctx, purgeBatch); err != nil {
			return clock, nil, false, fmt.Errorf("free messages whose claim has ended: %w", err)
		}
		c.reclaimed = now
	}
	if now.Sub(c.purged) >= purgeInterval {
		if _, err := c.store.Purge(ctx, max(0, c.options.Retention), purgeBatch); err != nil {
			return clock, nil, false, fmt.Errorf("delete delivered messages past their retention: %w", err)
		}
		c.purged = now
	}
	if now.Sub(c.heard) >= controlInterval {
		inForce, err := c.store.Controls(ctx)
		if err != nil {
			return clock, nil, false, fmt.Errorf("ask what is paused: %w", err)
		}
		c.inForce, c.heard = inForce, now
	}
	for _, control := range c.inForce {
		switch control.Kind {
		case storage.PauseTopic:
			paused = append(paused, control.Name)
		case storage.PauseRelay:
			standsDown = standsDown || control.Name == c.options.Name && !c.alone
		}
	}
	slices.Sort(paused)
	return c.clock, paused, standsDown, nil
}

// Close takes the consumer out of the table of relays. What it has not
// answered is free for others when its lease ends.
func (c *Consumer) Close(ctx context.Context) error {
	if err := c.notMade(); err != nil {
		return err
	}
	return c.store.Deregister(ctx, c.options.Name)
}

// Delivery is a message that a Consumer has claimed. It is answered once, with
// Done, Retry or Park; each returns [storage.ErrFenced] if the claim is another's by
// then, and the message may be delivered again.
type Delivery struct {
	sinks.Message

	// Until is when the claim ends, by this process's clock.
	Until time.Time

	consumer *Consumer
	row      storage.Row
	token    string
}

// notMade is an error if Receive didn't make it.
func (d *Delivery) notMade() error {
	if d == nil || d.consumer == nil {
		return errors.New("the Delivery is nil or empty: use what Receive returned, once its error was looked at")
	}
	return nil
}

// Done marks the message delivered; the receipt, which may be empty, is kept
// with it.
func (d *Delivery) Done(ctx context.Context, receipt string) error {
	return d.settle(ctx, storage.StateDone, 1, 0, "", shorten(receipt, 255))
}

// Retry gives the message up until its next attempt, after a back-off; after
// the last attempt it is parked. The reason is kept with the message.
func (d *Delivery) Retry(ctx context.Context, reason string) error {
	if err := d.notMade(); err != nil {
		return err
	}
	attempts, limit := d.row.Attempts+1, d.consumer.options.MaxAttempts
	if limit > 0 && attempts >= limit {
		return d.settle(ctx, storage.StateError, 1, 0, describe(sinks.Fail(sinks.Reject, sinks.ReasonExhausted, reason)), "")
	}
	return d.settle(ctx, storage.StateRetry, 1, d.consumer.options.Backoff.draw(attempts), shorten(reason, 1000), "")
}

// Park puts the message aside for an operator.
func (d *Delivery) Park(ctx context.Context, reason string) error {
	return d.settle(ctx, storage.StateError, 1, 0, describe(sinks.Fail(sinks.Reject, sinks.ReasonRefused, reason)), "")
}

// Extend lets the claim end this long from now.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) error {
	if err := d.notMade(); err != nil {
		return err
	}
	now := time.Now()
	kept, err := d.consumer.store.Extend(ctx, d.token, []int64{d.row.ID}, by)
	if err != nil {
		return fmt.Errorf("extend the claim of message %s: %w", d.ID, err)
	}
	if len(kept) == 0 {
		return fmt.Errorf("extend the claim of message %s: %w", d.ID, storage.ErrFenced)
	}
	d.Until = now.Add(by)
	return nil
}

func (d *Delivery) settle(ctx context.Context, state storage.State, charged int, delay time.Duration, problem, receipt string) error {
	if err := d.notMade(); err != nil {
		return err
	}
	s := storage.Settlement{
		ID: d.row.ID, Lane: d.row.Lane, MessageID: d.row.Message.ID, Token: d.token, State: state, Attempts: d.row.Attempts + charged, Crashes: d.row.Crashes,
		Delay: delay, Error: problem, Receipt: receipt,
	}
	keep := d.consumer.options.Retention != KeepNothing
	counts, err := d.consumer.store.Settle(ctx, d.consumer.options.Name, keep, []storage.Settlement{s})
	if err != nil {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, state, err)
	}
	if counts.Changed == 0 {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, state, storage.ErrFenced)
	}
	return nil
}
