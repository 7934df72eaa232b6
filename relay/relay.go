// Package relay moves messages from their table to their sinks.
//
// A [Relay] claims the rows of one table through a [storage.Store], hands them to
// sinks, and writes back what became of each. Any number of relays, in any
// number of processes, may work on one table.
//
// The files are the stages of a message's way: lease, read, admit, queue,
// send, outcome, settle. run.go has the loop that joins them.
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

// Relay moves the messages of one table to its sinks.
type Relay struct {
	store       storage.Store
	options     Options
	named       bool // its name was given
	routes      *router
	names       []string // of the sinks, sorted; a queue's index is its place here
	wake        waker
	aborted     chan struct{}
	abort       sync.Once
	ran         atomic.Bool
	health      *health
	mostBlocked int // maxBlockedKeys; less in tests
	mostPassed  int // mostPassed; less in tests
}

// New makes a relay over a store. It checks the options and reports all that
// is wrong with them at once; it doesn't touch the store.
func New(store storage.Store, options Options) (*Relay, error) {
	if isNil(store) {
		return nil, errors.New("relay: there is no store: give what sqlstore.Open returned, once its error was looked at")
	}
	named := options.Name != ""
	options, err := options.withDefaults()
	problems, names := []error{err}, slices.Sorted(maps.Keys(options.Sinks))
	if len(names) == 0 {
		problems = append(problems, errors.New("sinks: there is none"))
	}
	configured := make(map[string]SinkOptions, len(names))
	for _, name := range names {
		if strings.TrimSpace(name) == "" || name == unroutedName {
			problems = append(problems, fmt.Errorf("sink %q: give it another name", name))
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

// Run relays until the context ends, and then stops cleanly: it reads no more,
// lets the sends that are under way finish (for at most DrainTimeout), writes
// their outcomes back and gives up its lanes. It returns nil after a clean
// stop, or after a drain; an error if it couldn't start. Trouble on the way
// (a database or sink that is gone) is waited out, logged and observed. Run
// may be called once.
func (r *Relay) Run(ctx context.Context) error {
	if err := r.notMade(); err != nil {
		return err
	}
	if r.ran.Swap(true) {
		return errors.New("relay: Run was called before; make a new relay")
	}
	e := r.newEngine()
	if err := r.store.SetClaimMode(ctx, r.options.Claim); err != nil {
		err = fmt.Errorf("start the relay to claim by %s: %w", r.options.Claim, err)
		if ctx.Err() != nil { // it was stopped: drivers' errors of that differ
			err = nil
		}
		return errors.Join(err, e.closeSinks(ctx))
	}
	r.health.reached.Store(r.health.now())
	r.health.looped.Store(r.health.now())
	r.health.started.Store(true)
	defer r.health.started.Store(false)
	return e.run(ctx)
}

// Abort skips the drain of a Run that is stopping (or stops it at once): sends
// under way are cancelled, what is known is settled. Safe to call at any time.
func (r *Relay) Abort() {
	if r.notMade() == nil {
		r.abort.Do(func() { close(r.aborted) })
	}
}

// Wake makes the relay look for new messages now, or 2 ms after its last look.
// It never blocks and may be called by anyone at any time; many calls at once
// are one look.
func (r *Relay) Wake() {
	if r.notMade() == nil {
		r.wake.wake()
	}
}

// StandbyReason says why the relay takes no part though it is healthy: others live whose sinks or routes
// are not its own. Empty if it does.
func (r *Relay) StandbyReason() string {
	if r.notMade() != nil {
		return ""
	}
	if why := r.health.waits.Load(); why != nil && r.health.started.Load() {
		return *why
	}
	return ""
}

// Healthy returns nil if the relay runs, its loop is alive, the database
// answered within the last lease, gives it what is due, lets it renew its leases and takes what it is told, and no sink is stuck
// in a call, or an error that says what is wrong.
func (r *Relay) Healthy() error {
	if err := r.notMade(); err != nil {
		return err
	}
	p := r.health
	if !p.started.Load() {
		return errors.New("the relay doesn't run")
	}
	now := p.now()
	if idle := time.Duration(now - p.looped.Load()); idle > max(r.options.Lease, 5*time.Second) {
		return fmt.Errorf("the relay's loop stands still for %v", idle.Round(time.Second))
	}
	if silent := time.Duration(now - p.reached.Load()); silent > r.options.Lease {
		return fmt.Errorf("the database didn't answer for %v: %s", silent.Round(time.Second), p.lastProblem())
	}
	if text := p.stuck.Load(); text != nil { // a handler that holds its transaction may be why other calls fail
		return errors.New(*text)
	}
	if since := p.readFails.Load(); since != 0 && time.Duration(now-since) > r.options.Lease {
		return fmt.Errorf("the table can't be read for %v: %s", time.Duration(now-since).Round(time.Second), *p.readError.Load())
	}
	if err := p.lease.unhealthy(now, "nothing is sent, as the leases can't be renewed", r.options.Lease); err != nil {
		return err
	}
	if err := p.journal.unhealthy(now, "what is to be sent can't be written down, and isn't sent,", r.options.Lease); err != nil {
		return err
	}
	if err := p.reclaim.unhealthy(now, "messages that are due can't be brought back", r.options.Lease); err != nil {
		return err
	}
	if text := p.unwritable.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

// notMade is an error if New didn't make it.
func (r *Relay) notMade() error {
	if r == nil || r.store == nil {
		return errors.New("relay: the Relay is nil or empty: use what New returned, once its error was looked at")
	}
	return nil
}

// StandbyReasonBeside returns why this relay would stand by if it started now beside the living relays: which of them have other
// sinks or routes, and what differs. It is empty if the relay would deliver messages, as it always does with Join.
// It does not access the database.
func (r *Relay) StandbyReasonBeside(living []storage.Member) string {
	if r.notMade() != nil || r.options.Join {
		return ""
	}
	return othersIn(storage.Identity{Name: r.options.Name, Config: setupOf(r.options, r.names)}, living)
}
