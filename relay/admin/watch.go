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

// Watch is an Observer that stores what the page shows about one relay: the points of the charts for the last six hours, the
// state of the relay's sinks, and failed attempts of messages. It records only events of this process, and the memory that it
// uses is bounded. Set it as the relay's Options.Observer and as Source.Watch.
type Watch struct {
	relay.Observer // the next observer, to which all events are passed on

	sinks map[string]*sinkWatch // never changes
	names []string              // the names of the sinks, sorted

	mu       sync.Mutex
	points   []Point              // a ring buffer once it has mostPoints points
	next     int                  // index of the oldest point of the ring buffer
	open     Point                // the current point
	before   totals               // totals at the start of the current point
	last     counted              // the last count of the table
	unrouted map[string]time.Time // when each topic without a route or destination was last reported
	failed   map[string]failure   // by stage
	attempts map[int64]*attempts  // by the row's id
	oldest   []int64              // the ids in attempts, oldest first
}

var (
	_ relay.Observer        = (*Watch)(nil)
	_ relay.AttemptObserver = (*Watch)(nil)
)

// Bounds of a Watch.
const (
	pointEvery      = 10 * time.Second
	mostPoints      = 6 * 60 * 6 // six hours
	mostMessages    = 4096       // messages whose failed attempts are stored
	mostAttempts    = 20         // how many of the last attempts of each message are stored
	mostTopics      = 100
	recentlyFailing = time.Minute
)

// Point is a point of the charts. It summarises an interval of about ten seconds.
type Point struct {
	At        time.Time `json:"at"`        // end of the interval
	Seconds   float64   `json:"seconds"`   // length of the interval
	Delivered int64     `json:"delivered"` // messages
	Failed    int64     `json:"failed"`    // attempts
	Parked    int64     `json:"parked"`    // messages
	Lag       float64   `json:"lag"`       // seconds from writing to delivery, on average
	MostLag   float64   `json:"most_lag"`

	// The last counts of the table; -1 if they are unknown.
	Pending int64 `json:"pending"`
	Waiting int64 `json:"waiting"` // scheduled or retry
	Error   int64 `json:"error"`

	names []string    // the relay's sinks
	sinks []sinkPoint // each sink's part of the point, in the order of names
}

// sinkPoint is one sink's part of a point.
type sinkPoint struct {
	delivered, failed, parked int64
	lag, mostLag              float64
}

// sinkWatch has the counters of one sink. The counters that are updated for each message are atomic.
type sinkWatch struct {
	delivered, failed, parked atomic.Int64
	lag, mostLag              atomic.Int64 // nanoseconds: the sum of all lags, and the longest lag in the current point
	inFlight, buffered        atomic.Int64
	down                      bool // this and the following fields are guarded by Watch.mu
	downSince                 time.Time
	downReason, downDetail    string
	rate                      float64 // messages delivered per second in the last finished point
	had                       totals  // totals at the start of the current point
	parkedFor                 map[sinks.Reason]int64
}

type totals struct{ delivered, failed, parked, lag int64 }

func (s *sinkWatch) totals() totals {
	return totals{s.delivered.Load(), s.failed.Load(), s.parked.Load(), s.lag.Load()}
}

func (t *totals) add(more totals) {
	t.delivered, t.failed, t.parked, t.lag = t.delivered+more.delivered, t.failed+more.failed, t.parked+more.parked, t.lag+more.lag
}

// until returns the difference between t and later totals, as a sink's part of a point.
func (t totals) until(later totals) (done sinkPoint) {
	done = sinkPoint{delivered: later.delivered - t.delivered, failed: later.failed - t.failed, parked: later.parked - t.parked}
	if done.delivered > 0 {
		done.lag = time.Duration((later.lag - t.lag) / done.delivered).Seconds()
	}
	return done
}

type failure struct {
	at   time.Time
	text string
}

type attempts struct {
	messageID string
	list      []relay.Attempt
}

// NewWatch returns a Watch for a relay with these sinks. The Watch passes all events on to the observer in
// its first argument, which may be nil.
func NewWatch(next relay.Observer, sinkNames ...string) *Watch {
	if next == nil {
		next = relay.NoObserver{}
	}
	w := &Watch{Observer: next, sinks: map[string]*sinkWatch{}, unrouted: map[string]time.Time{}, failed: map[string]failure{}, attempts: map[int64]*attempts{}}
	for _, name := range sinkNames {
		w.sinks[name] = &sinkWatch{parkedFor: map[sinks.Reason]int64{}}
	}
	w.names = slices.Sorted(maps.Keys(w.sinks))
	w.open.At = time.Now()
	return w
}

// Continue takes over the data of another Watch, for the sinks that both have. Call it after the other Watch's relay has
// stopped, and before the relay of this Watch starts.
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
			s.had, s.rate, s.parkedFor = s.totals(), was.rate, maps.Clone(was.parkedFor)
			w.before.add(s.had)
		}
	}
}

// Sent counts failed attempts.
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

// Parked counts a parked message.
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

// InMemory stores how many of a sink's messages are in flight and how many are in memory. Relays call it once a second, so it
// also ends the current point when pointEvery has passed.
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

// endPoint adds the current point to the stored points, and starts the next one.
func (w *Watch) endPoint(now time.Time) {
	point := Point{At: now, Seconds: now.Sub(w.open.At).Seconds(), Pending: -1, Waiting: -1, Error: -1, names: w.names}
	var all totals
	for _, name := range w.names {
		s := w.sinks[name]
		had, has := s.had, s.totals()
		s.had = has
		all.add(has)
		part := had.until(has)
		part.mostLag = time.Duration(s.mostLag.Swap(0)).Seconds()
		s.rate = float64(part.delivered) / point.Seconds
		point.sinks, point.MostLag = append(point.sinks, part), max(point.MostLag, part.mostLag)
	}
	whole := w.before.until(all)
	point.Delivered, point.Failed, point.Parked, point.Lag = whole.delivered, whole.failed, whole.parked, whole.lag
	if w.last.err == nil && !w.last.at.IsZero() && w.last.status.Has(storage.GaugeCounts) {
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

// History returns the points of the last six hours, oldest first.
func (w *Watch) History() []Point {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.points[w.next:], w.points[:w.next])
}

// HistoryOf returns the points of the last six hours for one sink, oldest first. The counts of the
// table are -1 in these points.
func (w *Watch) HistoryOf(sink string) (points []Point) {
	for _, p := range w.History() {
		if at := slices.Index(p.names, sink); at >= 0 {
			s := p.sinks[at]
			points = append(points, Point{At: p.At, Seconds: p.Seconds, Delivered: s.delivered, Failed: s.failed, Parked: s.parked, Lag: s.lag, MostLag: s.mostLag, Pending: -1, Waiting: -1, Error: -1})
		}
	}
	return points
}

// SinkDown records that a sink is unavailable, with the reason.
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

// SinkUp records that a sink is available again.
func (w *Watch) SinkUp(sink string) {
	w.Observer.SinkUp(sink)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sinks[sink]; s != nil {
		s.down = false
	}
}

// Unrouted records a topic without a route.
func (w *Watch) Unrouted(topic string) {
	w.Observer.Unrouted(topic)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.unrouted[topic]; known || len(w.unrouted) < mostTopics {
		w.unrouted[topic] = time.Now()
	}
}

// Failed records a failure of a stage, which the relay retries.
func (w *Watch) Failed(stage string, err error) {
	w.Observer.Failed(stage, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.failed[stage]; known || len(w.failed) < mostTopics {
		w.failed[stage] = failure{time.Now(), err.Error()}
	}
}

// Attempted stores a failed attempt. If the Watch already has attempts of mostMessages other messages, it drops the attempts of
// the message whose first failure was stored the longest time ago.
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
	if known.messageID != attempt.MessageID { // another message with the same row id
		*known = attempts{messageID: attempt.MessageID}
	}
	if len(known.list) >= mostAttempts {
		known.list = slices.Delete(known.list, 0, 1)
	}
	known.list = append(known.list, attempt)
}

// attemptsOf returns the stored attempts of a message, oldest first.
func (w *Watch) attemptsOf(id int64, messageID string) []relay.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.attempts[id]; known != nil && known.messageID == messageID {
		return slices.Clone(known.list)
	}
	return nil
}

// Counting returns a function that calls the given function and stores its result in the Watch. Use the returned
// function for every count of the table, so that the page can show the result.
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

// lastCounted returns the last count. The time of the count is zero if the table has not been counted.
func (w *Watch) lastCounted() counted {
	if w == nil {
		return counted{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// sinkReport is the state of a sink in this process.
type sinkReport struct {
	Name      string                 `json:"name"`
	Down      bool                   `json:"down"`
	DownSince time.Time              `json:"down_since,omitzero"`
	Reason    string                 `json:"reason,omitempty"` // why the sink is down
	Detail    string                 `json:"detail,omitempty"`
	InFlight  int64                  `json:"in_flight"`
	Buffered  int64                  `json:"buffered"`
	Rate      float64                `json:"rate"` // messages delivered per second in the last finished point
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

// troubles returns the topics that recently had no route or destination, and the stages that recently failed.
func (w *Watch) troubles(now time.Time) (unrouted []string, failed map[string]failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic, met := range w.unrouted {
		if now.Sub(met) < 2*time.Minute { // relays report each topic once a minute
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
