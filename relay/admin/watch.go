package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Watch is an Observer that remembers what the page shows of one relay: the last hours as points
// of charts, how its sinks do, and the failed attempts of messages. All of it is of this process,
// and bounded. Options.Observer of a relay has it, and the Source.
type Watch struct {
	relay.Observer // is told everything as well

	sinks map[string]*sinkWatch // never changed

	mu       sync.Mutex
	points   []Point              // a ring, once it is full
	next     int                  // of the ring
	open     Point                // the one that is being filled
	before   totals               // as it began
	last     counted              // what was counted last, by whomever
	unrouted map[string]time.Time // when a topic without a route was met last
	failed   map[string]failure   // by stage
	attempts map[int64]*attempts  // by the message's id
	oldest   []int64              // ids of attempts, the first of which is forgotten first
}

var (
	_ relay.Observer        = (*Watch)(nil)
	_ relay.AttemptObserver = (*Watch)(nil)
)

// Bounds of what a Watch remembers.
const (
	pointEvery      = 10 * time.Second
	mostPoints      = 6 * 60 * 6 // six hours
	mostMessages    = 4096       // with failed attempts
	mostAttempts    = 20         // of each: the last ones
	mostTopics      = 100
	recentlyFailing = time.Minute
)

// Point is what happened in a while: a point of the charts.
type Point struct {
	At        time.Time `json:"at"`        // its end
	Seconds   float64   `json:"seconds"`   // its length
	Delivered int64     `json:"delivered"` // messages
	Failed    int64     `json:"failed"`    // attempts
	Parked    int64     `json:"parked"`    // messages
	Lag       float64   `json:"lag"`       // seconds from writing to delivery, on average
	MostLag   float64   `json:"most_lag"`

	// What the table held when it was last counted; negative where it was not.
	Pending int64 `json:"pending"`
	Waiting int64 `json:"waiting"` // scheduled or retry
	Error   int64 `json:"error"`
}

// sinkWatch counts for one sink. What is counted for each message is atomic.
type sinkWatch struct {
	delivered, failed, parked atomic.Int64
	lag, mostLag              atomic.Int64 // nanoseconds: the sum, and the longest of the open point
	inFlight, buffered        atomic.Int64
	down                      bool // the rest is under Watch.mu
	downSince                 time.Time
	downReason, downDetail    string
	rate                      float64 // delivered a second, in the last whole point
	had                       int64   // delivered when the open point began
	parkedFor                 map[sinks.Reason]int64
}

type totals struct{ delivered, failed, parked, lag int64 }

type failure struct {
	at   time.Time
	text string
}

type attempts struct {
	messageID string
	list      []relay.Attempt
}

// NewWatch returns a Watch of a relay with these sinks, which tells next all that it is told; nil
// is nobody.
func NewWatch(next relay.Observer, sinkNames ...string) *Watch {
	if next == nil {
		next = relay.NoObserver{}
	}
	w := &Watch{Observer: next, sinks: map[string]*sinkWatch{}, unrouted: map[string]time.Time{}, failed: map[string]failure{}, attempts: map[int64]*attempts{}}
	for _, name := range sinkNames {
		w.sinks[name] = &sinkWatch{parkedFor: map[sinks.Reason]int64{}}
	}
	w.open.At = time.Now()
	return w
}

// Continue takes over what another Watch remembers, of the sinks that both have. It is called once the other's relay has
// stopped, and before this one's starts.
func (w *Watch) Continue(before *Watch) {
	if before == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before.mu.Lock()
	defer before.mu.Unlock()
	w.points, w.next, w.attempts, w.oldest = slices.Clone(before.points), before.next, maps.Clone(before.attempts), slices.Clone(before.oldest)
	for name, s := range w.sinks {
		if was := before.sinks[name]; was != nil {
			s.delivered.Store(was.delivered.Load())
			s.failed.Store(was.failed.Load())
			s.parked.Store(was.parked.Load())
			s.lag.Store(was.lag.Load())
			s.had, s.rate, s.parkedFor = was.delivered.Load(), was.rate, maps.Clone(was.parkedFor)
			w.before.delivered += was.delivered.Load()
			w.before.failed += was.failed.Load()
			w.before.parked += was.parked.Load()
			w.before.lag += was.lag.Load()
		}
	}
}

// Sent counts attempts that failed.
func (w *Watch) Sent(sink string, took time.Duration, results map[relay.OutcomeKind]int) {
	w.Observer.Sent(sink, took, results)
	s := w.sinks[sink]
	if s == nil {
		return
	}
	for kind, count := range results {
		if kind.Result != sinks.Delivered && kind.Result != sinks.Unsent {
			s.failed.Add(int64(count))
		}
	}
}

// Delivered counts a message and its lag.
func (w *Watch) Delivered(sink, topic string, lag time.Duration) {
	w.Observer.Delivered(sink, topic, lag)
	s := w.sinks[sink]
	if s == nil {
		return
	}
	s.delivered.Add(1)
	s.lag.Add(int64(lag))
	for most := s.mostLag.Load(); int64(lag) > most && !s.mostLag.CompareAndSwap(most, int64(lag)); most = s.mostLag.Load() {
	}
}

// Parked counts a message that waits for an operator.
func (w *Watch) Parked(sink string, reason sinks.Reason) {
	w.Observer.Parked(sink, reason)
	if s := w.sinks[sink]; s != nil {
		s.parked.Add(1)
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, known := s.parkedFor[reason]; known || len(s.parkedFor) < mostTopics {
			s.parkedFor[reason]++
		}
	}
}

// InMemory notes what of a sink is in memory. As it comes once a second, it ends points as well.
func (w *Watch) InMemory(sink string, inFlight, buffered int) {
	w.Observer.InMemory(sink, inFlight, buffered)
	if s := w.sinks[sink]; s != nil {
		s.inFlight.Store(int64(inFlight))
		s.buffered.Store(int64(buffered))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.open.At) >= pointEvery {
		w.endPoint(now)
	}
}

// endPoint puts the open point to the others, and begins the next one.
func (w *Watch) endPoint(now time.Time) {
	point := Point{At: now, Seconds: now.Sub(w.open.At).Seconds(), Pending: -1, Waiting: -1, Error: -1}
	var all totals
	for _, s := range w.sinks {
		delivered := s.delivered.Load()
		s.rate, s.had = float64(delivered-s.had)/point.Seconds, delivered
		all.delivered += delivered
		all.failed += s.failed.Load()
		all.parked += s.parked.Load()
		all.lag += s.lag.Load()
		point.MostLag = max(point.MostLag, time.Duration(s.mostLag.Swap(0)).Seconds())
	}
	point.Delivered, point.Failed, point.Parked = all.delivered-w.before.delivered, all.failed-w.before.failed, all.parked-w.before.parked
	if point.Delivered > 0 {
		point.Lag = time.Duration((all.lag - w.before.lag) / point.Delivered).Seconds()
	}
	if w.last.err == nil && !w.last.at.IsZero() {
		counts := w.last.status.Counts
		point.Pending = counts[storage.StatePending] + counts[storage.StateClaimed]
		point.Waiting = counts[storage.StateScheduled] + counts[storage.StateRetry]
		point.Error = counts[storage.StateError]
	}
	w.before, w.open = all, Point{At: now}
	if len(w.points) < mostPoints {
		w.points = append(w.points, point)
		return
	}
	w.points[w.next] = point
	w.next = (w.next + 1) % mostPoints
}

// History returns the points of the last hours, the first one first.
func (w *Watch) History() []Point {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.points[w.next:], w.points[:w.next])
}

// SinkDown notes that a sink is unavailable, and why.
func (w *Watch) SinkDown(sink string, reason sinks.Reason, detail string) {
	w.Observer.SinkDown(sink, reason, detail)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sinks[sink]; s != nil {
		if !s.down {
			s.downSince = time.Now()
		}
		s.down, s.downReason, s.downDetail = true, string(reason), detail
	}
}

// SinkUp notes that it takes messages again.
func (w *Watch) SinkUp(sink string) {
	w.Observer.SinkUp(sink)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sinks[sink]; s != nil {
		s.down = false
	}
}

// Unrouted notes a topic without a route.
func (w *Watch) Unrouted(topic string) {
	w.Observer.Unrouted(topic)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.unrouted[topic]; known || len(w.unrouted) < mostTopics {
		w.unrouted[topic] = time.Now()
	}
}

// Failed notes what fails and is tried again.
func (w *Watch) Failed(stage string, err error) {
	w.Observer.Failed(stage, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.failed[stage]; known || len(w.failed) < mostTopics {
		w.failed[stage] = failure{time.Now(), err.Error()}
	}
}

// Attempted remembers a failed attempt. Of the messages with such attempts, those are forgotten
// first that failed first.
func (w *Watch) Attempted(attempt relay.Attempt) {
	if next, wants := w.Observer.(relay.AttemptObserver); wants {
		next.Attempted(attempt)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.attempts[attempt.ID]
	if known == nil {
		if len(w.oldest) >= mostMessages {
			delete(w.attempts, w.oldest[0])
			w.oldest = w.oldest[1:]
		}
		known = &attempts{}
		w.attempts[attempt.ID], w.oldest = known, append(w.oldest, attempt.ID)
	}
	if known.messageID != attempt.MessageID { // its id was given out again
		*known = attempts{messageID: attempt.MessageID}
	}
	if len(known.list) >= mostAttempts {
		known.list = slices.Delete(known.list, 0, 1)
	}
	known.list = append(known.list, attempt)
}

// attemptsOf returns what is remembered of a message, the first attempt first.
func (w *Watch) attemptsOf(id int64, messageID string) []relay.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.attempts[id]; known != nil && known.messageID == messageID {
		return slices.Clone(known.list)
	}
	return nil
}

// Counting returns count, but the Watch learns what was counted: whoever counts a table anyway
// does so by this function.
func (w *Watch) Counting(count func(context.Context) (storage.Status, error)) func(context.Context) (storage.Status, error) {
	return func(ctx context.Context) (storage.Status, error) {
		began := time.Now()
		status, err := count(ctx)
		now := counted{status: status, err: err, at: time.Now(), took: time.Since(began)}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = now
		return status, err
	}
}

// lastCounted is what was counted last; its time is zero where nothing was.
func (w *Watch) lastCounted() counted {
	if w == nil {
		return counted{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// sinkReport is how a sink does, as far as this process knows.
type sinkReport struct {
	Name      string                 `json:"name"`
	Down      bool                   `json:"down"`
	DownSince time.Time              `json:"down_since,omitzero"`
	Reason    string                 `json:"reason,omitempty"` // why it is down
	Detail    string                 `json:"detail,omitempty"`
	InFlight  int64                  `json:"in_flight"`
	Buffered  int64                  `json:"buffered"`
	Rate      float64                `json:"rate"` // delivered a second, lately
	Delivered int64                  `json:"delivered"`
	Failed    int64                  `json:"failed"` // attempts
	Parked    map[sinks.Reason]int64 `json:"parked"` // by reason
	Paused    *storage.Control       `json:"paused,omitempty"`
	Limit     *storage.Control       `json:"limit,omitempty"`
}

func (w *Watch) sinkReports(controls []storage.Control) (reports []sinkReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.sinks {
		report := sinkReport{
			Name: name, Down: s.down, InFlight: s.inFlight.Load(), Buffered: s.buffered.Load(), Rate: s.rate,
			Delivered: s.delivered.Load(), Failed: s.failed.Load(), Parked: map[sinks.Reason]int64{},
		}
		if s.down {
			report.DownSince, report.Reason, report.Detail = s.downSince, s.downReason, s.downDetail
		}
		for reason, count := range s.parkedFor {
			report.Parked[reason] = count
		}
		for i, c := range controls {
			switch {
			case c.Name != name:
			case c.Kind == storage.PauseSink:
				report.Paused = &controls[i]
			case c.Kind == storage.LimitSink:
				report.Limit = &controls[i]
			}
		}
		reports = append(reports, report)
	}
	slices.SortFunc(reports, func(a, b sinkReport) int { return cmp.Compare(a.Name, b.Name) })
	return reports
}

// troubles are the topics without a route that were met lately, and the stages that failed lately.
func (w *Watch) troubles(now time.Time) (unrouted []string, failed map[string]failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic, met := range w.unrouted {
		if now.Sub(met) < 2*time.Minute { // it is told once a minute
			unrouted = append(unrouted, topic)
		}
	}
	slices.Sort(unrouted)
	failed = map[string]failure{}
	for stage, f := range w.failed {
		if now.Sub(f.at) < recentlyFailing {
			failed[stage] = f
		}
	}
	return unrouted, failed
}
