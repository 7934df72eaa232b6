package relay

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Observer is told what happens, for metrics and logs. Its methods must return
// at once and may be called by several goroutines at the same time. Embed
// [NoObserver] to implement some of them.
type Observer interface {
	// Sent: a batch came back from a sink after took; results has the number of
	// messages by result and reason.
	Sent(sink string, took time.Duration, results map[OutcomeKind]int)

	// Delivered: so long after it was written a message was delivered.
	Delivered(sink, topic string, lag time.Duration)

	// Settled: outcomes were written back.
	Settled(counts storage.Settled, states map[storage.State]int)

	// LanesHeld: the relay holds so many lanes now; lost says how many leases
	// it lost since the last call without having released them.
	LanesHeld(held, lost int)

	// SinkDown: the sink was found unavailable, and why; SinkUp: it takes
	// messages again.
	SinkDown(sink string, reason sinks.Reason, detail string)
	SinkUp(sink string)

	// Unrouted: a message of this topic waits because no route takes it, or no
	// handler behind its sink. Called when a topic is met for the first time, and
	// once a minute after.
	Unrouted(topic string)

	// Failed: a stage's work failed and will be tried again.
	Failed(stage string, err error)

	// Polled: the loop looked for messages and found so many. A relay that
	// doesn't look any more is dead.
	Polled(rows int)
}

// OutcomeKind is the part of a sinks.Outcome that is counted.
type OutcomeKind struct {
	Result sinks.Result
	Reason sinks.Reason
}

// NoObserver does nothing.
type NoObserver struct{}

var _ Observer = NoObserver{}

func (NoObserver) Sent(string, time.Duration, map[OutcomeKind]int) {}
func (NoObserver) Delivered(string, string, time.Duration)         {}
func (NoObserver) Settled(storage.Settled, map[storage.State]int)  {}
func (NoObserver) LanesHeld(int, int)                              {}
func (NoObserver) SinkDown(string, sinks.Reason, string)           {}
func (NoObserver) SinkUp(string)                                   {}
func (NoObserver) Unrouted(string)                                 {}
func (NoObserver) Failed(string, error)                            {}
func (NoObserver) Polled(int)                                      {}

// observeSent counts outcomes.
func (q *sinkQueue) observeSent(took time.Duration, outcomes []sinks.Outcome) {
	counts := map[OutcomeKind]int{}
	for _, outcome := range outcomes {
		counts[OutcomeKind{outcome.Result, outcome.Reason}]++
	}
	q.base.options.Observer.Sent(q.name, took, counts)
}

// quietTime is how long a line of the log that was written is not repeated.
const quietTime = 10 * time.Second

// logLimiter keeps trouble that lasts from filling the log.
type logLimiter struct {
	mu    sync.Mutex
	lines map[string]*limitedLine
}

type limitedLine struct {
	last time.Time
	more int
}

// again says whether a line may be written now, and how many like it were not
// since the last one.
func (q *logLimiter) again(line string) (ok bool, more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = map[string]*limitedLine{}
	}
	l := q.lines[line]
	if l == nil {
		l = &limitedLine{}
		q.lines[line] = l
	}
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= quietTime {
		more, l.last, l.more = l.more, now, 0
		return true, more
	}
	l.more++
	return false, 0
}

// describe is what an operator reads on the row.
func describe(outcome sinks.Outcome) string {
	return shorten(strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": "), 1000)
}

// shorten cuts a text to at most n bytes of valid UTF-8, without NUL, which
// some databases can't store.
func shorten(s string, n int) string {
	if s == "" {
		return ""
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// loggable is what the log may have of an outcome. What follows the status of an
// answer is the destination's own text, which may repeat a payload.
func loggable(outcome sinks.Outcome) string {
	detail := shorten(outcome.Detail, 4000)
	if len(detail) > 3 && strings.Trim(detail[:3], "0123456789") == "" {
		detail, _, _ = strings.Cut(detail, ": ")
	}
	return detail
}

// health tells Healthy how the loop does.
type health struct {
	started atomic.Bool
	looped  atomic.Int64 // when the loop last came round, in nanoseconds since epoch
	reached atomic.Int64 // when the database last answered
	epoch   time.Time

	safeUntil atomic.Int64 // nothing is sent after it
	readFails atomic.Int64 // since when some kind of read has been failing; 0 if none is

	readError  atomic.Pointer[string] // the last error of a read
	problem    atomic.Pointer[string] // the last error of the database; none once anything succeeds
	stuck      atomic.Pointer[string] // the last send that doesn't return
	unwritable atomic.Pointer[string] // what of the outcomes it refuses
}

func (p *health) now() int64 { return int64(time.Since(p.epoch)) }

// readFailed is told of each read's error before readFails is.
func (p *health) readFailed(err error) {
	text := err.Error()
	p.readError.Store(&text)
}

func (p *health) lastProblem() string {
	if text := p.problem.Load(); text != nil {
		return *text
	}
	return "no answer"
}
