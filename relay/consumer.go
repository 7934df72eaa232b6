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

// ConsumerOptions configure a [Consumer]. All fields have defaults.
type ConsumerOptions struct {
	// Name identifies the consumer among the relays and consumers of its table. It has the same default as [Options].Name.
	Name string

	// Version is a text that the command `rowrelay status` shows to operators. Defaults to "".
	Version string

	// Topics limits the consumer to messages of these topics; an empty list means all topics. Pick is the order in which messages
	// are claimed; it defaults to [storage.Oldest].
	Topics []string
	Pick   storage.Pick

	// Lease is how long a claimed message belongs to the consumer, unless [Delivery.Extend] extends the claim. Defaults to 30 s; at
	// least 1 s.
	Lease time.Duration

	// Poll is the time between two polls while Receive waits. Defaults to 200 ms; at least 1 ms.
	Poll time.Duration

	// MaxAttempts is the number of failed attempts after which Retry parks the message. Defaults to 20; negative means that
	// Retry never parks a message.
	MaxAttempts int

	// Backoff is the back-off before the next attempt, as in [SinkOptions].
	Backoff Backoff

	// ExpireAfter and OnExpire determine when messages expire and what happens to them then, as in [Route]. ExpireAfter defaults
	// to 0: only messages that have an ExpiresAt expire. OnExpire defaults to [ParkExpired].
	ExpireAfter time.Duration
	OnExpire    OnExpire

	// Retention is how long delivered messages are kept, as in [Options]. Every 10 s, Receive deletes older ones.
	Retention time.Duration

	// Observer is notified only of expired messages, with the sink name "consumer". Defaults to [NoObserver].
	Observer Observer

	// Logger logs only expired messages, at most one line in 10 s. Defaults to slog.Default.
	Logger *slog.Logger
}

// Consumer lets an application claim messages itself, instead of being called by a relay. It claims by rows, so messages are
// not delivered in order. Any number of consumers and of relays that claim by rows may share a table. [NewConsumer] creates a
// consumer. A consumer's methods may be called concurrently.
type Consumer struct {
	store   storage.Store
	options ConsumerOptions
	routes  *router // one route for all topics, with ExpireAfter and OnExpire
	wake    waker

	logLimiter logLimiter

	mu        sync.Mutex
	clock     databaseClock
	alone     bool              // no other relay or consumer is alive
	inForce   []storage.Control // the controls that were read last
	heard     time.Time
	stored    bool
	reclaimed time.Time
	beaten    time.Time
	purged    time.Time
}

// NewConsumer returns a consumer that uses the store. NewConsumer itself doesn't access the database.
func NewConsumer(store storage.Store, options ConsumerOptions) (*Consumer, error) {
	if isNil(store) {
		return nil, errors.New("consumer: the store is nil: pass what sqlstore.Open returned, after checking its error")
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

// Wake makes a waiting call of Receive poll immediately.
func (c *Consumer) Wake() {
	if c.notMade() == nil {
		c.wake.wake()
	}
}

// notMade returns an error unless this consumer was returned by NewConsumer.
func (c *Consumer) notMade() error {
	if c == nil || c.store == nil {
		return errors.New("the Consumer is nil or empty: use what NewConsumer returned, after checking its error")
	}
	return nil
}

// Receive claims at most n messages with at most 8 MiB of payload, or a single larger message. If no message can be claimed,
// Receive waits until one can be. If the context ends first, Receive returns the context's error. Each delivery must be
// answered with Done, Retry or Park before its claim expires; after that another consumer or relay may claim its message.
func (c *Consumer) Receive(ctx context.Context, n int) ([]*Delivery, error) {
	if err := c.notMade(); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("receive %d messages: must be at least 1", n)
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
			polled = true // the poll interval is the only reason for the next claim
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
		d := &Delivery{Message: (&item{row: row}).message(), Until: claimed.Add(c.options.Lease), consumer: c, row: row, token: token, claimed: claimed}
		expires, by := c.routes.expiryOf(&row)
		switch { // some rows are settled without a delivery
		case row.Later:
			err = d.settle(ctx, 0, storage.Settlement{State: storage.StateScheduled})
		case clock.passed(expires):
			become, problem := by.expire(&row)
			if err = d.settle(ctx, 0, storage.Settlement{State: become, Error: problem}); err == nil {
				by.reportExpired(c.options.Observer, c.options.Logger, &c.logLimiter, c.options.Name, "consumer", &row, "")
			}
		case row.Malformed != "":
			err = d.settle(ctx, 1, storage.Settlement{State: storage.StateError, Error: describe(sinks.Fail(sinks.Reject, sinks.ReasonInvalid, row.Malformed))})
		default:
			deliveries = append(deliveries, d)
		}
		if err != nil && !errors.Is(err, storage.ErrFenced) {
			problems = append(problems, err)
		}
	}
	if len(deliveries) > 0 { // rows that couldn't be settled are free again when their claims expire
		return deliveries, nil
	}
	return nil, errors.Join(problems...)
}

// live sends heartbeats, frees expired claims, deletes old messages, and reads the controls, each at its own interval. It returns
// the database's clock, the paused topics, and whether this consumer is paused.
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
			return clock, nil, false, fmt.Errorf("send the consumer's heartbeat: %w", err)
		}
		c.beaten, c.clock, c.alone = now, databaseClock{members.Now, time.Now()}, len(members.Relays) < 2
	}
	if now.Sub(c.reclaimed) >= reclaimInterval {
		if _, err := c.store.Reclaim(ctx, purgeBatch); err != nil {
			return clock, nil, false, fmt.Errorf("free expired claims: %w", err)
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
			return clock, nil, false, fmt.Errorf("read the controls: %w", err)
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

// Close removes the consumer from the table of relays. Deliveries that were not answered can be claimed again when their claims
// expire.
func (c *Consumer) Close(ctx context.Context) error {
	if err := c.notMade(); err != nil {
		return err
	}
	return c.store.Deregister(ctx, c.options.Name)
}

// Delivery is a message that a Consumer has claimed. It must be answered once, with Done, Retry or Park. These methods return
// [storage.ErrFenced] if the claim has expired and the message has since been freed for other claims; then the message may be
// delivered again.
type Delivery struct {
	sinks.Message

	// Until is when the claim expires, on this process's clock.
	Until time.Time

	consumer *Consumer
	row      storage.Row
	token    string
	claimed  time.Time
}

// notMade returns an error unless this delivery was returned by Receive.
func (d *Delivery) notMade() error {
	if d == nil || d.consumer == nil {
		return errors.New("the Delivery is nil or empty: use what Receive returned, after checking its error")
	}
	return nil
}

// Done marks the message as delivered. The receipt may be empty. Up to 255 bytes of it are stored with the message.
func (d *Delivery) Done(ctx context.Context, receipt string) error {
	return d.settle(ctx, 1, storage.Settlement{State: storage.StateDone, Receipt: shorten(receipt, 255)})
}

// Retry schedules another attempt after a back-off, or parks the message if this was the last attempt. Up to 1,000 bytes of the
// reason are stored with the message.
func (d *Delivery) Retry(ctx context.Context, reason string) error {
	if err := d.notMade(); err != nil {
		return err
	}
	attempts, limit := d.row.Attempts+1, d.consumer.options.MaxAttempts
	if limit > 0 && attempts >= limit {
		return d.failed(ctx, storage.Settlement{State: storage.StateError, Error: describe(sinks.Fail(sinks.Reject, sinks.ReasonExhausted, reason))})
	}
	return d.failed(ctx, storage.Settlement{State: storage.StateRetry, Error: shorten(reason, 1000), Delay: d.consumer.options.Backoff.draw(attempts)})
}

// Park parks the message, which then waits for an operator. The reason is stored with the message.
func (d *Delivery) Park(ctx context.Context, reason string) error {
	return d.failed(ctx, storage.Settlement{State: storage.StateError, Error: describe(sinks.Fail(sinks.Reject, sinks.ReasonRefused, reason))})
}

// Extend makes the claim expire after the given duration, counted from now.
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

// failed settles the delivery as a failed attempt, and charges it.
func (d *Delivery) failed(ctx context.Context, s storage.Settlement) error {
	if err := d.notMade(); err != nil {
		return err
	}
	c := d.consumer
	c.mu.Lock()
	now := c.clock.now()
	c.mu.Unlock()
	took := time.Since(d.claimed)
	s.Failed = []storage.Attempt{{At: now.Add(-took), Relay: c.options.Name, Answer: s.Error, DurationMS: took.Milliseconds()}}
	return d.settle(ctx, 1, s)
}

// settle writes the settlement's state and result for the delivery's row, with the given number of charged attempts.
func (d *Delivery) settle(ctx context.Context, charged int, s storage.Settlement) error {
	if err := d.notMade(); err != nil {
		return err
	}
	s.ID, s.Lane, s.MessageID, s.Token = d.row.ID, d.row.Lane, d.row.Message.ID, d.token
	s.Attempts, s.Crashes = d.row.Attempts+charged, d.row.Crashes
	keep := d.consumer.options.Retention != KeepNothing
	counts, err := d.consumer.store.Settle(ctx, d.consumer.options.Name, keep, []storage.Settlement{s})
	if err != nil {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, s.State, err)
	}
	if counts.Changed == 0 {
		return fmt.Errorf("mark message %s as %s: %w", d.ID, s.State, storage.ErrFenced)
	}
	return nil
}
