package httpsink

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// endpoints keeps the endpoints that messages choose out of each other's way:
// each has its share of requests, its rate and its circuit. What comes in is a
// request for a message (call); it waits for its endpoint's turn (enter, try), is
// made, and its outcome opens or closes the endpoint (leave, learn). What can't be
// sent soon is postponed, so that the sink's other messages go on. Its methods may
// be called concurrently.
type endpoints struct {
	share   int           // requests to one endpoint at once
	apart   time.Duration // between two requests to one endpoint; 0: no rate
	longest time.Duration // pause of an endpoint that is closed
	slots   chan struct{} // requests at once, over all, but for those that take longer than the patience

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

// endpoint is a scheme, host and port that messages have chosen, and what the
// sink knows of it. Its methods need the lock of endpoints.
type endpoint struct {
	inFlight int           // turns that were given
	begun    int           // requests under way
	left     chan struct{} // closed when one of them ends; nil: nobody waits
	moved    time.Time     // when it last answered, or got something to do
	took     time.Duration // its last answer
	answers  bool          // it has taken a message
	next     time.Time     // by the rate: not before

	failures int           // in a row
	refused  string        // the message that was refused last
	refuses  bool          // closed since it refuses all
	closings int           // in a row
	until    time.Time     // closed so long; then one request tries it
	why      sinks.Outcome // what closed it

	back  time.Time // when the last of those that were put off comes back
	group int       // how many come back then
}

const (
	// patience is how long an endpoint may take to answer before it counts as
	// slow, and how long a message waits for its turn.
	patience = time.Second

	// slowFor is the shortest time after its last request for which an endpoint counts as slow. If that request took long, it
	// counts as slow for ten times as long, so that an endpoint that hangs holds up Sends for a tenth of the time at most.
	slowFor = time.Minute

	// mostFailures in a row close an endpoint.
	mostFailures = 5

	// firstPause is what an endpoint is closed for at first; it doubles.
	firstPause = time.Second

	// backlogRate is how many messages a second come back to an endpoint that was
	// closed, at most: each time they do is a write to the table.
	backlogRate = 100

	// longestTurn bounds the wait of a message that has to wait for its turn.
	longestTurn = 5 * time.Minute
)

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
	giveBack, ok := all.slot(ctx, turn)
	if !ok {
		return all.leave(turn, sinks.Cancelled())
	}
	defer giveBack()
	turn.begin()
	turn.message = message
	return all.leave(turn, request())
}

// slot waits for one of the requests that may be under way at once. A request that takes longer than the
// patience gives its slot to another, and one to a slow endpoint needs none, so that endpoints that hang can't
// keep all slots. try bounds how many such requests there are: one to an endpoint that has not answered
// yet, and those of one Send to slow endpoints.
func (all *endpoints) slot(ctx context.Context, t *turn) (giveBack func(), ok bool) {
	if t.slow {
		return func() {}, true
	}
	select {
	case all.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	once := sync.OnceFunc(func() { <-all.slots })
	timer := time.AfterFunc(patience, once)
	return func() { timer.Stop(); once() }, true
}

// turn is the right to make one request to an endpoint.
type turn struct {
	all   *endpoints
	to    *endpoint
	slow  bool
	began time.Time

	message string // its id
}

// enter waits for a turn, up to the patience; without one it returns the outcome
// of the message.
func (all *endpoints) enter(ctx context.Context, r *round, name string) (*turn, sinks.Outcome) {
	for {
		t, notNow, again := all.try(r, name)
		if again == nil {
			return t, notNow
		}
		if !again.wait(ctx) {
			return nil, sinks.Cancelled()
		}
	}
}

// try returns a turn, or an outcome, or what to wait for.
func (all *endpoints) try(r *round, name string) (*turn, sinks.Outcome, *pause) {
	all.mu.Lock()
	defer all.mu.Unlock()
	e, now := all.of(name), time.Now()
	if e.slow() && e.inFlight == 0 && now.Sub(e.moved) > max(slowFor, 10*e.took) { // it may be quick by now: it is tried as an endpoint that isn't known
		e.took, e.answers = 0, false
	}
	if o, closed := e.closed(now); closed {
		return nil, o, nil
	}
	switch {
	case e.stuck(now), e.slow() && !all.maySlowly(r, now):
		return nil, e.busy(now, all.share, e.took), nil
	case e.next.Sub(now) > patience:
		return nil, e.busy(now, 1, all.apart), nil
	case e.inFlight >= all.share, e.inFlight > 0 && !e.answers:
		if e.left == nil {
			e.left = make(chan struct{})
		}
		most := patience
		if e.begun > 0 {
			most = e.moved.Add(patience + time.Millisecond).Sub(now)
		}
		return nil, sinks.Outcome{}, &pause{left: e.left, most: most}
	case e.next.After(now):
		return nil, sinks.Outcome{}, &pause{most: e.next.Sub(now)}
	}
	if e.inFlight++; e.inFlight == 1 {
		e.moved = now
	}
	e.next = now.Add(all.apart)
	if e.slow() {
		all.slow = r
		all.slowly++
	}
	return &turn{all: all, to: e, slow: e.slow()}, sinks.Outcome{}, nil
}

// maySlowly says whether this Send may wait for a slow endpoint.
func (all *endpoints) maySlowly(r *round, now time.Time) bool {
	return !r.mixed && (all.slow == nil || all.slow == r) && now.Sub(r.began) <= patience
}

// pause is what a message waits for before it tries again.
type pause struct {
	left <-chan struct{}
	most time.Duration
}

func (p *pause) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.most)
	defer timer.Stop()
	select {
	case <-p.left:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// begin notes that the request goes out now.
func (t *turn) begin() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.began = time.Now()
	t.to.moved = t.began
	t.to.begun++
}

// leave gives the turn back, and returns what the request's outcome is to its
// message.
func (all *endpoints) leave(t *turn, o sinks.Outcome) sinks.Outcome {
	all.mu.Lock()
	defer all.mu.Unlock()
	e, now := t.to, time.Now()
	e.inFlight--
	if t.slow {
		if all.slowly--; all.slowly == 0 {
			all.slow = nil
		}
	}
	if e.left != nil {
		close(e.left)
		e.left = nil
	}
	if !t.began.IsZero() {
		e.begun--
	}
	if t.began.IsZero() || o.Result == sinks.Unsent {
		return o
	}
	e.answers = e.answers || o.Result == sinks.Delivered
	e.moved, e.took = now, now.Sub(t.began)
	return e.learn(t.message, o, now, all.longest)
}

// learn takes an outcome in, and returns what it is to the message: trouble of
// the endpoint costs no attempt, if nothing can have arrived. What it refuses closes
// it as any failure does, if it isn't the same message again and again.
func (e *endpoint) learn(message string, o sinks.Outcome, now time.Time, longest time.Duration) sinks.Outcome {
	switch o.Result {
	case sinks.Delivered:
		e.open()
	case sinks.Unavailable:
		e.failures++
		e.close(o, now, longest)
		return sinks.Postpone(o.Reason, o.Detail, e.until.Sub(now))
	case sinks.Retry:
		e.fail(o, now, longest)
	case sinks.Reject:
		if o.Reason == sinks.ReasonInvalid {
			return o // it wasn't asked
		}
		if e.closings > 0 && !e.refuses {
			e.open() // it answers
		}
		if again := e.refused == message; !again || e.refuses {
			e.refused = message
			e.refuses = e.fail(o, now, longest)
		}
	}
	return o
}

// fail counts a failure, and closes the endpoint if it is one too many.
func (e *endpoint) fail(o sinks.Outcome, now time.Time, longest time.Duration) (closed bool) {
	if e.failures++; e.failures < mostFailures {
		return false
	}
	detail := fmt.Sprintf("the endpoint failed %d times in a row, lastly so: %s", e.failures, o.Detail)
	e.close(sinks.Outcome{Reason: sinks.ReasonConnection, Detail: detail, RetryAfter: o.RetryAfter}, now, longest)
	return true
}

func (e *endpoint) close(why sinks.Outcome, now time.Time, longest time.Duration) {
	e.closings++
	pause := min(firstPause<<min(e.closings-1, 20), longest) * 4 / 5
	pause += rand.N(pause/4 + 1) // so that endpoints don't all come back at one moment
	e.until, e.why = now.Add(max(pause, why.RetryAfter)), why
}

func (e *endpoint) open() {
	e.failures, e.closings, e.until, e.refused, e.refuses = 0, 0, time.Time{}, "", false
}

// closed is the outcome of a message while the endpoint is closed, or is being
// tried.
func (e *endpoint) closed(now time.Time) (sinks.Outcome, bool) {
	wait := e.until.Sub(now)
	if e.closings == 0 || wait <= 0 && e.inFlight == 0 {
		return sinks.Outcome{}, false
	}
	return sinks.Postpone(e.why.Reason, e.why.Detail, e.inTurn(now, max(wait, firstPause), backlogRate, time.Second)), true
}

// busy is the outcome of a message whose turn has not come. So many come back
// together, which lasts so long, and after those before them.
func (e *endpoint) busy(now time.Time, together int, lasts time.Duration) sinks.Outcome {
	return sinks.Postpone(sinks.ReasonBusy, "the endpoint has its share of requests, or answers slowly: this message's turn comes later",
		e.inTurn(now, patience, together, lasts))
}

// inTurn is how long a message waits that is put off.
func (e *endpoint) inTurn(now time.Time, least time.Duration, together int, lasts time.Duration) time.Duration {
	if e.group++; e.group > together {
		e.back, e.group = e.back.Add(lasts), 1
	}
	if soonest := now.Add(least); e.back.Before(soonest.Add(-patience / 2)) { // a little room: now goes on
		e.back, e.group = soonest, 1
	}
	return min(max(e.back.Sub(now), least), max(least, longestTurn))
}

func (e *endpoint) slow() bool { return e.took > patience }

// stuck says that requests are under way and none has been answered for a while.
func (e *endpoint) stuck(now time.Time) bool { return e.begun > 0 && now.Sub(e.moved) > patience }

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

// nameOf is the same for all addresses that lead to one endpoint.
func nameOf(u *url.URL) string {
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") + ":" + portOf(u)
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
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
		if e.inFlight == 0 && !e.until.After(now) {
			delete(all.known, name)
		}
	}
	for name, e := range all.known {
		if len(all.known) > mostKnown/2 && e.inFlight == 0 {
			delete(all.known, name)
		}
	}
}
