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

// endpoints is the set of endpoints (scheme, host and port) that messages have chosen. Each endpoint has its own limit of
// concurrent requests, its own rate and its own circuit breaker. Each request waits for a turn at its endpoint (see enter and
// try). After failures the endpoint is closed: it gets no requests until a pause has passed. A success opens it again (see
// leave and learn). A message that can't be sent soon is postponed, so that it doesn't delay messages of other endpoints. The
// methods may be called concurrently.
type endpoints struct {
	share   int           // maximum number of concurrent requests to one endpoint
	apart   time.Duration // minimum time between the starts of two requests to one endpoint; 0: no limit
	longest time.Duration // the longest pause of a closed endpoint
	slots   chan struct{} // limits the concurrent requests of all endpoints; a request holds its slot for at most a second (patience)

	mu     sync.Mutex
	known  map[string]*endpoint
	slow   *round // the only Send that makes requests to slow endpoints; nil if no Send does
	slowly int    // number of turns at slow endpoints, all held by the Send in slow
}

// round is the state of one Send. Only one Send at a time waits for slow endpoints. A mixed Send has messages of slow and of
// other endpoints. It postpones the messages of slow endpoints, because waiting for them would block the keys of its other
// messages.
type round struct {
	began time.Time
	mixed bool
}

// endpoint is the state of a scheme, host and port that messages have chosen. Its methods must be called with endpoints.mu
// held.
type endpoint struct {
	inFlight int           // turns taken and not yet given back
	begun    int           // requests in progress
	left     chan struct{} // closed when a turn is given back; nil if no message waits for a turn
	moved    time.Time     // time of the last event: an answer, the start of a request, or the first turn at an idle endpoint
	took     time.Duration // the duration of the last request
	answers  bool          // the endpoint has accepted a message; reset when a slow endpoint is tested again
	next     time.Time     // earliest start of the next request, according to the rate

	failures int           // consecutive failures
	refused  string        // the id of the last message that the endpoint rejected
	refuses  bool          // the endpoint was closed because it rejected different messages in succession
	closings int           // how often the endpoint was closed since the last success
	until    time.Time     // the endpoint is closed until this time; then one request tests it
	why      sinks.Outcome // the outcome that closed the endpoint

	back  time.Time // when the last postponed message is sent again
	group int       // how many postponed messages are sent again at that time
}

const (
	// patience is the response time above which an endpoint counts as slow, and the longest single wait for a turn.
	patience = time.Second

	// After its last request, a slow endpoint counts as slow for slowFor or for ten times the duration of that request,
	// whichever is longer. The first request after this time may delay messages of other endpoints again. So a hanging
	// endpoint delays them for at most a tenth of the time.
	slowFor = time.Minute

	// mostFailures is the number of consecutive failures after which an endpoint is closed.
	mostFailures = 5

	// firstPause is the first pause of a closed endpoint. Each further pause is twice as long.
	firstPause = time.Second

	// backlogRate limits how many postponed messages per second are tried again at an endpoint that was closed. The limit
	// is low because a message that is postponed again costs a write to the table.
	backlogRate = 100

	// longestTurn is the longest time for which a message is postponed, unless its endpoint is closed for longer.
	longestTurn = 5 * time.Minute
)

// newEndpoints returns nil if all messages go to one endpoint. In that case, the whole sink is unavailable while the
// endpoint is unavailable.
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

// call waits for a turn at the endpoint and makes the request. If the message must be postponed, call makes no request
// and returns the outcome of the postponed message.
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

// slot waits until the limit of concurrent requests allows another request. A request that takes longer than a second
// (patience) gives up its slot, and a request to a slow endpoint needs no slot, so that hanging endpoints can't hold all
// slots. [endpoints.try] limits the requests without a slot: an endpoint gets only one request at a time until it has
// accepted a message, and only one Send at a time makes requests to slow endpoints.
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

	message string // the message's id
}

// enter waits for a turn, at most a second (patience) at a time. If the message must be postponed, enter returns its
// outcome.
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

// try returns a turn, the outcome of a postponed message, or a pause before the next try.
func (all *endpoints) try(r *round, name string) (*turn, sinks.Outcome, *pause) {
	all.mu.Lock()
	defer all.mu.Unlock()
	e, now := all.of(name), time.Now()
	if e.slow() && e.inFlight == 0 && now.Sub(e.moved) > max(slowFor, 10*e.took) { // treat it as an unknown endpoint again: it may be fast now
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

// maySlowly reports whether this Send may make a request to a slow endpoint now.
func (all *endpoints) maySlowly(r *round, now time.Time) bool {
	return !r.mixed && (all.slow == nil || all.slow == r) && now.Sub(r.began) <= patience
}

// pause is a wait before the next call to try. It ends when another request gives back
// its turn at the endpoint, and at the latest after pause.most.
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

// begin records that the request starts.
func (t *turn) begin() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.began = time.Now()
	t.to.moved = t.began
	t.to.begun++
}

// leave gives the turn back and converts the request's outcome to the outcome of the message.
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

// learn updates the state of the endpoint after a request, and returns the outcome of the message. If the request's outcome is
// Unavailable, the message is postponed without being charged an attempt. A rejection counts as a failure of the endpoint,
// unless it only repeats the last rejection of the same message.
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
			return o // no request was made
		}
		if e.closings > 0 && !e.refuses {
			e.open() // the endpoint works, because it answered
		}
		if again := e.refused == message; !again || e.refuses {
			e.refused = message
			e.refuses = e.fail(o, now, longest)
		}
	}
	return o
}

// fail counts a failure and closes the endpoint after mostFailures.
func (e *endpoint) fail(o sinks.Outcome, now time.Time, longest time.Duration) (closed bool) {
	if e.failures++; e.failures < mostFailures {
		return false
	}
	detail := fmt.Sprintf("the endpoint failed %d times in succession, the last time with: %s", e.failures, o.Detail)
	e.close(sinks.Outcome{Reason: sinks.ReasonConnection, Detail: detail, RetryAfter: o.RetryAfter}, now, longest)
	return true
}

func (e *endpoint) close(why sinks.Outcome, now time.Time, longest time.Duration) {
	e.closings++
	pause := min(firstPause<<min(e.closings-1, 20), longest) * 4 / 5
	pause += rand.N(pause/4 + 1) // so that not all endpoints are tested at the same moment
	e.until, e.why = now.Add(max(pause, why.RetryAfter)), why
}

func (e *endpoint) open() {
	e.failures, e.closings, e.until, e.refused, e.refuses = 0, 0, time.Time{}, "", false
}

// closed reports whether the endpoint is closed or being tested. In both cases, no other message may be sent to the endpoint
// now, and the first result is the outcome of a postponed message.
func (e *endpoint) closed(now time.Time) (sinks.Outcome, bool) {
	wait := e.until.Sub(now)
	if e.closings == 0 || wait <= 0 && e.inFlight == 0 {
		return sinks.Outcome{}, false
	}
	return sinks.Postpone(e.why.Reason, e.why.Detail, e.inTurn(now, max(wait, firstPause), backlogRate, time.Second)), true
}

// busy postpones a message that can't get a turn yet. Postponed messages are sent again in groups. The last two
// parameters set the size of a group and the time between two groups.
func (e *endpoint) busy(now time.Time, together int, lasts time.Duration) sinks.Outcome {
	return sinks.Postpone(sinks.ReasonBusy, "the endpoint is at its limit of requests or answers slowly: the message is sent later",
		e.inTurn(now, patience, together, lasts))
}

// inTurn returns how long a postponed message waits.
func (e *endpoint) inTurn(now time.Time, least time.Duration, together int, lasts time.Duration) time.Duration {
	if e.group++; e.group > together {
		e.back, e.group = e.back.Add(lasts), 1
	}
	if soonest := now.Add(least); e.back.Before(soonest.Add(-patience / 2)) { // patience/2 is a tolerance, because time passes between the calls for the messages of a group
		e.back, e.group = soonest, 1
	}
	return min(max(e.back.Sub(now), least), max(least, longestTurn))
}

func (e *endpoint) slow() bool { return e.took > patience }

// stuck reports whether requests are in progress, but no request has started and no answer has arrived for more than a second
// (patience).
func (e *endpoint) stuck(now time.Time) bool { return e.begun > 0 && now.Sub(e.moved) > patience }

// asked has the data of a message that [endpoints.mixed] needs: the name of the message's
// endpoint, and whether the message is overdue.
type asked struct {
	name    string
	overdue bool
}

// mixed reports whether some of the batch's endpoints are slow and others are not. It returns false if a message of a slow
// endpoint is overdue.
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

// nameOf returns the same name for all URLs of one endpoint.
func nameOf(u *url.URL) string {
	return u.Scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") + ":" + portOf(u)
}

func portOf(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// mostKnown limits how many endpoints are kept in memory.
const mostKnown = 10_000

// of returns the endpoint with this name and creates it if necessary.
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

// forget removes all idle endpoints that are not closed and, if too many endpoints are left, other idle ones.
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
