package httpsink

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// endpoints keeps the endpoints that messages choose out of each other's way:
// each has its share of requests, its rate and its circuit. What can't be sent
// now is postponed, so that the sink's other messages go on. Its methods may be
// called concurrently.
type endpoints struct {
	share   int           // requests to one endpoint at once
	apart   time.Duration // between two requests to one endpoint; 0: no rate
	longest time.Duration // pause of an endpoint that is closed
	slots   chan struct{} // requests at once, over all

	mu     sync.Mutex
	known  map[string]*endpoint
	slow   *round // the Send that waits for slow endpoints
	slowly int    // its requests to such
}

// round is one Send. Only one waits for slow endpoints at a time, so that others
// have none to wait for; and one that has messages of others, too, doesn't, as
// their keys go on when it has ended.
type round struct {
	began time.Time
	mixed bool
}

// newEndpoints returns nil where the address is the same for all messages: then
// the endpoint's trouble is the sink's.
func newEndpoints(options Options, t target) *endpoints {
	if !t.chosen {
		return nil
	}
	e := &endpoints{
		share: options.EndpointConcurrency, longest: options.EndpointPause,
		slots: make(chan struct{}, options.Concurrency), known: map[string]*endpoint{},
	}
	if options.EndpointRate > 0 {
		e.apart = time.Second / time.Duration(options.EndpointRate)
	}
	return e
}

// asked is a message's endpoint, and whether it has waited for so long that it
// goes in any case.
type asked struct {
	name    string
	overdue bool
}

// mixed says that some of these endpoints are slow, and others aren't.
func (all *endpoints) mixed(batch []asked) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	slow := 0
	for _, a := range batch {
		if e := all.known[a.name]; e != nil && e.slow() {
			if a.overdue {
				return false
			}
			slow++
		}
	}
	return 0 < slow && slow < len(batch)
}

// call makes a request for a message when its endpoint's turn has come, or says why
// it isn't made now.
func (all *endpoints) call(ctx context.Context, r *round, to *url.URL, message string, request func() sinks.Outcome) sinks.Outcome {
	if all == nil {
		return request()
	}
	turn, notNow := all.enter(ctx, r, nameOf(to))
	if turn == nil {
		return notNow
	}
	select {
	case all.slots <- struct{}{}:
		defer func() { <-all.slots }()
	case <-ctx.Done():
		return all.leave(turn, cancelled)
	}
	turn.begin()
	turn.message = message
	return all.leave(turn, request())
}

// nameOf is the same for all addresses that lead to one endpoint.
func nameOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") + ":" + port
}

// mostKnown bounds the memory for endpoints.
const mostKnown = 10_000

// of returns the endpoint of this name.
func (all *endpoints) of(name string) *endpoint {
	e := all.known[name]
	if e == nil {
		if len(all.known) >= mostKnown {
			all.forget(time.Now())
		}
		e = &endpoint{}
		all.known[name] = e
	}
	return e
}

// forget makes room: of endpoints that do nothing, those that are not closed go
// first.
func (all *endpoints) forget(now time.Time) {
	for name, e := range all.known {
		if e.flying == 0 && !e.until.After(now) {
			delete(all.known, name)
		}
	}
	for name, e := range all.known {
		if len(all.known) > mostKnown/2 && e.flying == 0 {
			delete(all.known, name)
		}
	}
}
