// Package relay delivers messages from an outbox table to sinks.
//
// A [Relay] claims the rows of one table through a [storage.Store], sends their
// messages to sinks, and settles the rows with the outcomes. Any number of
// relays, in any number of processes, may work on one table.
//
// The files follow the path of a message: lease, read, admit, queue, send,
// outcome, settle. run.go contains the loop that connects them.
package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Relay delivers the messages of one table to its sinks. [New] makes one. All methods may be called concurrently.
type Relay struct {
	store       storage.Store
	options     Options
	named       bool // Options.Name was set
	routes      *router
	names       []string // the names of the sinks, sorted; a queue has the index of its name
	wake        waker
	aborted     chan struct{}
	abort       sync.Once
	ran         atomic.Bool
	health      *health
	mostBlocked int // the value of the constant maxBlockedKeys; smaller in tests
	mostPassed  int // the value of the constant mostPassed; smaller in tests
}

// New returns a relay that uses the store. If the options are invalid, the error lists all problems. New doesn't access the
// database.
func New(store storage.Store, options Options) (*Relay, error) {
	if isNil(store) {
		return nil, errors.New("relay: the store is nil: pass what sqlstore.Open returned, after checking its error")
	}
	named := options.Name != ""
	options, err := options.withDefaults()
	problems, names := []error{err}, slices.Sorted(maps.Keys(options.Sinks))
	if len(names) == 0 {
		problems = append(problems, errors.New("sinks: at least one is required"))
	}
	configured := make(map[string]SinkOptions, len(names))
	for _, name := range names {
		if strings.TrimSpace(name) == "" || name == unroutedName {
			problems = append(problems, fmt.Errorf("sink %q: the name is blank or reserved: use another name", name))
		}
		if configured[name], err = options.Sinks[name].withDefaults(store, options.Claim); err != nil {
			problems = append(problems, fmt.Errorf("sink %q: %w", name, err))
		}
	}
	options.Sinks = configured
	if len(options.Routes) == 0 && len(names) == 1 {
		options.Routes = []Route{{Topic: "*", Sink: names[0]}}
	}
	routes, err := newRouter(options.Routes, names)
	if err == nil {
		if len(names) > 1 {
			err = routes.several(options.Claim)
		}
		for _, name := range names {
			if sink := configured[name]; sink.DeadLetter != (DeadLetter{}) {
				err = errors.Join(err, sink.checkDeadLetter(name, routes))
			}
		}
	}
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return &Relay{store: store, options: options, named: named, routes: routes, names: names,
		wake: make(waker, 1), aborted: make(chan struct{}), health: &health{epoch: time.Now()}, mostBlocked: maxBlockedKeys, mostPassed: mostPassed}, nil
}

// Run delivers messages until the context ends, and then stops: it reads no
// more messages, waits at most DrainTimeout for the sends in flight, writes
// their outcomes, and gives back its lanes. It returns nil after a clean stop
// or a complete drain. It returns an error if it couldn't start, if the stop
// left something unfinished, or if a drain left messages that are due. While
// the database or a sink is unavailable, Run keeps trying, and reports the
// failures to the log and the Observer. Run may be called only once.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.notMade(); err != nil {
		return err
	}
	if r.ran.Swap(true) {
		return errors.New("relay: Run was called before; each Run needs a new Relay")
	}
	e := r.newEngine()
	if err := r.store.SetClaimMode(ctx, r.options.Claim); err != nil {
		err = fmt.Errorf("start the relay to claim by %s: %w", r.options.Claim, err)
		if ctx.Err() != nil { // the relay was stopped; each driver reports this with an error of its own
			err = nil
		}
		return errors.Join(err, e.closeSinks(ctx))
	}
	r.logStart()
	r.health.reached.Store(r.health.now())
	r.health.looped.Store(r.health.now())
	r.health.started.Store(true)
	defer r.health.started.Store(false)
	return e.run(ctx)
}

// logStart logs the relay's sinks and routes. It logs nothing for a drain, since drains are short and may run often.
func (r *Relay) logStart() {
	if o := r.options; !o.Drain {
		setup := setupOf(o, r.names)
		o.Logger.Info("relay: started", "relay", o.Name, "claim", string(o.Claim), "sinks", setup.Sinks, "routes", setup.Routes)
	}
}

// Abort makes Run stop without waiting for the sends in flight: Run cancels them, and writes the outcomes that are known. Abort
// may be called at any time.
func (r *Relay) Abort() {
	if r.notMade() == nil {
		r.abort.Do(func() { close(r.aborted) })
	}
}

// Wake makes the relay read new messages now, or 2 ms after its last read began if that is later. Wake never blocks, and may be
// called at any time. Many calls in quick succession cause one read.
func (r *Relay) Wake() {
	if r.notMade() == nil {
		r.wake.wake()
	}
}

// StandbyReason returns why the relay stands by: which relays with other sinks or routes are active. The reason is empty if the
// relay is active. A relay that stands by is healthy.
func (r *Relay) StandbyReason() string {
	if r.notMade() != nil {
		return ""
	}
	if why := r.health.waits.Load(); why != nil && r.health.started.Load() {
		return *why
	}
	return ""
}

// Healthy returns nil if the relay works, and otherwise an error with the reason. The relay works if Run is running and its loop is
// not blocked; the database has answered within the duration of a lease; no call to a sink is stuck; reads, renewals of leases,
// writes of journals and outcomes, and the freeing of expired claims have not been failing for longer than a lease; and the database
// refuses no outcome. A sink that is down doesn't make the relay unhealthy.
func (r *Relay) Healthy() error {
	if err := r.notMade(); err != nil {
		return err
	}
	p := r.health
	if !p.started.Load() {
		return errors.New("the relay isn't running")
	}
	now := p.now()
	if idle := time.Duration(now - p.looped.Load()); idle > max(r.options.Lease, 5*time.Second) {
		return fmt.Errorf("the relay's loop has been blocked for %v", idle.Round(time.Second))
	}
	if silent := time.Duration(now - p.reached.Load()); silent > r.options.Lease {
		return fmt.Errorf("the database has not answered for %v: %s", silent.Round(time.Second), p.lastProblem())
	}
	if text := p.stuck.Load(); text != nil { // before the checks below: a stuck handler that holds a transaction may cause the failures that these checks report
		return errors.New(*text)
	}
	if since := p.readFails.Load(); since != 0 && time.Duration(now-since) > r.options.Lease {
		return fmt.Errorf("reading the table has failed for %v: %s", time.Duration(now-since).Round(time.Second), *p.readError.Load())
	}
	if err := p.lease.unhealthy(now, "no messages are sent, because renewing the leases has failed", r.options.Lease); err != nil {
		return err
	}
	if err := p.journal.unhealthy(now, "some messages are not sent, because writing the journals has failed", r.options.Lease); err != nil {
		return err
	}
	if err := p.reclaim.unhealthy(now, "deferred messages and messages with expired claims are not delivered, because making them claimable has failed", r.options.Lease); err != nil {
		return err
	}
	if text := p.unwritable.Load(); text != nil {
		return errors.New(*text)
	}
	return p.settle.unhealthy(now, "messages would be sent again after a restart, because writing outcomes has failed", r.options.Lease)
}

// notMade returns an error unless this relay was returned by New().
func (r *Relay) notMade() error {
	if r == nil || r.store == nil {
		return errors.New("relay: the Relay is nil or empty: use what New returned, after checking its error")
	}
	return nil
}

// StandbyReasonAmong returns why this relay would stand by if it started now while the given relays are alive: which of them
// have other sinks or routes, and what differs. The reason is empty if the relay would be active, as it always is with Join.
// StandbyReasonAmong does not access the database.
func (r *Relay) StandbyReasonAmong(living []storage.Member) string {
	if r.notMade() != nil || r.options.Join {
		return ""
	}
	return othersIn(storage.Identity{Name: r.options.Name, Config: setupOf(r.options, r.names)}, living)
}
