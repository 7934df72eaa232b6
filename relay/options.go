package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// DefaultRetention is how long delivered messages are kept where nothing else is said.
const DefaultRetention = 24 * time.Hour

// KeepNothing as Options.Retention deletes a message as soon as it is
// delivered.
const KeepNothing time.Duration = -1

// Options say what a relay does. Sinks is required, and Routes where there is
// more than one sink; everything else has a default that suits a production
// system.
type Options struct {
	// Name identifies this relay among those of its table. A relay that begins with the name
	// of another takes its part over at once, and so is back without waiting for the end of its
	// own leases: give a name where a relay that was killed comes back elsewhere, as a member of
	// a StatefulSet does. If the other one lives it is fenced, and waits for the end of this one. Defaults to the
	// host's name, what tells the process, and a few random characters; a relay on the same host then
	// sees that the process is no more (on Linux).
	Name string

	// Version is shown in the table of relays. Defaults to "".
	Version string

	// Claim is the way to claim messages: [storage.ByLanes] (the default) keeps order
	// per key, [storage.ByRows] doesn't. It is stored with the table by the first
	// relay; one that was told otherwise while others live doesn't start.
	Claim storage.Claim

	// Sinks are the destinations, by name.
	Sinks map[string]SinkOptions

	// Routes say which topic goes to which sink. With none and a single sink,
	// every topic goes there. A message whose topic no route takes waits.
	Routes []Route

	// Lease is how long the right to a lane or to a claimed row lasts without
	// being renewed, and so how long a crash delays what its relay held. It is
	// renewed after a third of it. Defaults to 15 s; at least 1 s.
	Lease time.Duration

	// Poll is the longest time between two looks for new messages when nothing
	// wakes the relay. While looks that nobody asked for find something, the next ones
	// follow after 7 ms. Defaults to 200 ms; at least 1 ms.
	Poll time.Duration

	// Listener wakes the relay when the database says that there is something
	// new. Defaults to none: the relay polls, and [Relay.Wake] wakes it. A drain
	// doesn't use it: it looks again by itself until nothing is left.
	Listener Listener

	// Join lets the relay share the messages with living relays whose sinks or routes are others.
	// Without it, it waits until these have stopped: it takes no message, is healthy, and
	// [Relay.StandbyReason] and the log say why. One that takes part goes on when others come. Where
	// relays with the same sinks and routes take part, it does, too.
	Join bool

	// Retention is how long delivered messages are kept. Defaults to 24 h;
	// [KeepNothing] deletes them when they are delivered.
	Retention time.Duration

	// DrainTimeout is how long a stopping relay waits for the sends that are
	// under way. Defaults to 10 s.
	DrainTimeout time.Duration

	// Drain lets Run return once nothing is left that could be delivered now. It returns nil only if no message is left
	// that is due, and else an error that says why: a pause, a topic without a route, or a message that no read has found
	// for 10 s. Two kinds of messages don't count: those of other relays' lanes and of topics that aren't in Topics; and,
	// by lanes, those whose key waits at each of their sinks for a message that is not due yet or is parked. Run also
	// fails if the table can't be searched for what is due, 3 times in a row and for 10 s.
	Drain bool

	// Pick says which rows are claimed first, Topics limits the claim to some
	// topics (none: all). Both apply to [storage.ByRows] only. Pick defaults to
	// [storage.Oldest].
	Pick   storage.Pick
	Topics []string

	// Observer is told what happens. Defaults to [NoObserver].
	Observer Observer

	// Logger receives what an operator should know; never a payload or a
	// secret. Defaults to slog.Default.
	Logger *slog.Logger

	// Tracer follows messages from their writer's trace on; tracing.New in relay/tracing makes
	// one for OpenTelemetry. Without one, which is the default, the headers that a message was
	// written with go on as they are.
	Tracer Tracer
}

// SinkOptions say how a sink is used.
type SinkOptions struct {
	Sink sinks.Sink

	// Batch and BatchBytes bound one call of Send. Default to 500 messages (1
	// for a transactional handler) and 4 MiB of payload; the sink's own limits
	// apply too.
	Batch      int
	BatchBytes int

	// Workers is the number of calls of Send at once. Messages of one key are
	// in one call at a time in any case. Defaults to 2, or the sink's limit.
	Workers int

	// Buffer and BufferBytes bound the messages of this sink that are in memory
	// (waiting, under way, or not yet settled). Default to eight full batches
	// for each worker (by rows four), at most 8,000, and 16 MiB. Those under way
	// and not yet settled, which come again if the relay dies, are by lanes no more
	// than half of the buffer, or three batches for each worker if that is more.
	Buffer      int
	BufferBytes int

	// Timeout bounds one call of Send; of a handler that takes single messages, and of other
	// sinks that are [sinks.OneByOne], each message. Defaults to 30 s.
	Timeout time.Duration

	// MaxAttempts is the number of charged attempts after which a message is
	// parked. Defaults to 20; negative means never.
	MaxAttempts int

	// BreakerThreshold is the number of keys whose messages fail for the first time in a row, with none delivered between, from
	// which on the destination is in trouble, whatever it answers: the breaker opens, and the sink is tried with one
	// message after the other, as one that is unavailable. A message without a key counts as a key. Where some keys usually
	// fail between two deliveries, it takes four times as many more for each of these, at most 41 times as many. Each relay counts what it
	// sends. Defaults to 5; negative means never, and then every failure counts at once.
	BreakerThreshold int

	// JudgeAloneAfter is how long a message that fails while nothing else is delivered to its destination is taken for the
	// destination's trouble: it is tried again and charged nothing, its key waits, and after 5 s the sink is reported as down.
	// After that time the message is judged by its own answers: a rejection parks it, and another failure charges an
	// attempt. Where something else is delivered, the first repetition counts. Answers with [sinks.ReasonConnection],
	// [sinks.ReasonThrottled], [sinks.ReasonAuth] and [sinks.ReasonConfig] are never judged so, nor is a message while the
	// messages of BreakerThreshold keys fail. Defaults to 30 min, but to [JudgeAtOnce] for what a function of this process
	// rejects (inproc.Permanent). [NeverJudgeAlone] waits for ever.
	JudgeAloneAfter time.Duration

	// ParkRateLimit is how many messages a relay may park for the sink within a minute while the sink refuses more than it
	// delivers: then the breaker trips, pauses the sink for all relays until an operator resumes it, and logs an error.
	// Each relay counts its own messages. Of two or more relays each allows half of it. Messages that no sink can take, as
	// they are invalid, don't count. Defaults to 50; negative means no limit. A relay that may not write the table of
	// controls pauses the sink for itself.
	ParkRateLimit int

	// OnPark says what becomes of a key when one of its messages is parked: the next
	// one is sent ([ContinueKey], the default), or all wait for an operator
	// ([HoldKey]), which takes a relay that claims by lanes. Messages without a key,
	// and those that have expired, hold up nothing. Keys that are held when this is
	// changed stay so.
	OnPark OnPark

	// DeadLetter says where a message is sent, too, when it is parked, also as it has
	// expired: once each time, as a message of its own, with the payload and the key. Its
	// headers are the message's, and rowrelay-dead-letter-message-id, -topic, -sink, -reason,
	// -error (up to 500 bytes), -attempts, -created-at and -parked-at. It is written in the
	// transaction that parks the message, by a relay that may INSERT into the table, and has
	// the promise of any other; one that is parked itself gets none. Defaults to nowhere.
	DeadLetter DeadLetter

	// Backoff bounds the wait before the next attempt, which is drawn at random
	// between nothing and a bound that doubles with each attempt ("full
	// jitter"). Min is the first bound, Max the last. Default to 500 ms and
	// 5 min.
	Backoff Backoff

	// BreakerBackoff bounds the wait before an unavailable sink is opened again, and before a message is tried again that failed
	// and was charged nothing, in the same way. Default to 500 ms and 15 s.
	BreakerBackoff Backoff
}

// Values of [SinkOptions].JudgeAloneAfter.
const (
	// JudgeAtOnce judges each failure by its own answer, unless messages of BreakerThreshold keys fail.
	JudgeAtOnce time.Duration = -1

	// NeverJudgeAlone takes a message that fails alone for its destination's trouble, however long it does.
	NeverJudgeAlone time.Duration = math.MaxInt64

	defaultJudgeAloneAfter = 30 * time.Minute
)

// judgeAloneAfter is how long a message with this outcome waits for another delivery until it is judged without one.
func (s *SinkOptions) judgeAloneAfter(outcome *sinks.Outcome) time.Duration {
	switch {
	case isUnmistakable(outcome):
		return NeverJudgeAlone
	case s.JudgeAloneAfter == 0 && outcome.Result == sinks.Reject && outcome.Err != nil: // inproc.Permanent
		return 0
	case s.JudgeAloneAfter == 0:
		return defaultJudgeAloneAfter
	}
	return max(0, s.JudgeAloneAfter)
}

// OnPark is what becomes of a key when one of its messages is parked.
type OnPark string

// ContinueKey lets the key go on. HoldKey has it wait until an operator requeues the parked
// message, which goes first then, skips it or discards it; whatever waits behind costs the
// relay no memory.
const (
	ContinueKey OnPark = "continue"
	HoldKey     OnPark = "hold"
)

// DeadLetter says where a sink's dead letters go: either to where a topic is routed, or to a
// sink. The zero value is nowhere.
type DeadLetter struct {
	// Topic is that of the dead letters. A route takes it.
	Topic string

	// Sink takes them, whatever its routes say; they keep the topic of their message.
	Sink string
}

// Backoff is a pair of bounds of a wait that grows.
type Backoff struct {
	Min, Max time.Duration
}

// Route sends topics to a sink. Exactly one of Topic, Prefix and Pattern is
// set. An exact topic goes before a prefix, a longer prefix before a shorter
// one, and a prefix before a pattern; patterns are tried in their order.
type Route struct {
	Topic   string // exactly this topic; "*" alone means every topic, after all other routes
	Prefix  string // topics that begin so
	Pattern string // topics that match this regular expression (RE2) as a whole
	Sink    string // a name in Options.Sinks

	// Sinks, in the place of Sink, are several: each gets every message, in its own order per
	// key, and has its own attempts, back-off, breaker and parked messages. A message is done when
	// it is with each of them. By lanes only. The sinks of routes that match the same topic,
	// prefix or pattern are joined.
	//
	// What waits when a sink is added to a topic or taken away: messages of which no sink has been
	// delivered or has failed so far go to the sinks of today; the others to those that they
	// had then.
	Sinks []string

	// Also: the sinks of this route get what it matches in addition to those of the topic's own
	// route. Without it, the most exact route wins.
	Also bool

	// ExpireAfter is how long after it was written (created_at) a message is too old to be
	// sent, by the database's clock. A message's own ExpiresAt counts, too: the earlier of
	// both. It is looked at when a message is read and when it is taken to be sent, not in
	// between. Defaults to 0: never.
	ExpireAfter time.Duration

	// OnExpire is what becomes of a message that is too old, by ExpireAfter or by its own
	// ExpiresAt. Defaults to [ParkExpired].
	OnExpire OnExpire
}

// OnExpire is what becomes of a message that is too old to be sent.
type OnExpire string

// What there is to choose. Both are told to the Observer, and to the log.
const (
	// ParkExpired: the message waits for an operator, with the state error and a last_error
	// that begins with [storage.Expired]. Once it is requeued it is sent, however old it is.
	ParkExpired OnExpire = "park"

	// DiscardExpired: the message is deleted, and not kept among those that were delivered.
	DiscardExpired OnExpire = "discard"
)

// Listener waits for the database's word that there is something new.
type Listener interface {
	// Listen calls wake after each notification, and once whenever it has begun
	// to listen (again), since it may have missed some before. It returns when
	// its context ends, or with an error when it can't listen; the relay calls
	// it again after a pause, and polls meanwhile.
	Listen(ctx context.Context, wake func()) error
}

// withDefaults fills in what was left empty and reports all that is wrong.
func (o Options) withDefaults() (Options, error) {
	o.Name = cmp.Or(o.Name, thisProcess().name())
	o.Claim = cmp.Or(o.Claim, storage.ByLanes)
	o.Pick = cmp.Or(o.Pick, storage.Oldest)
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Poll = cmp.Or(o.Poll, 200*time.Millisecond)
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 10*time.Second)
	o.Observer = cmp.Or[Observer](o.Observer, NoObserver{})
	o.Logger = cmp.Or(o.Logger, slog.Default())
	var problems []error
	reject := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	reject(strings.TrimSpace(o.Name) == "" || len(o.Name) > 255, "name %q: must be 1 to 255 bytes", o.Name)
	reject(o.Claim != storage.ByLanes && o.Claim != storage.ByRows, "claim %q: must be %q or %q", o.Claim, storage.ByLanes, storage.ByRows)
	reject(o.Pick != storage.Oldest && o.Pick != storage.Newest && o.Pick != storage.Priority, "pick %q: must be %q, %q or %q", o.Pick, storage.Oldest, storage.Newest, storage.Priority)
	reject(o.Claim == storage.ByLanes && o.Pick != storage.Oldest, "pick %q: only a relay that claims by rows can pick; lanes are read in their order", o.Pick)
	reject(o.Claim == storage.ByLanes && len(o.Topics) > 0, "topics: only a relay that claims by rows can be limited to some; by lanes it must see every message of a lane")
	reject(o.Lease < time.Second, "lease %v: must be at least 1s", o.Lease)
	reject(o.Poll < time.Millisecond, "poll %v: must be at least 1ms", o.Poll)
	reject(o.Retention < 0 && o.Retention != KeepNothing, "retention %v: must not be negative", o.Retention)
	reject(o.DrainTimeout < 0, "drain timeout %v: must not be negative", o.DrainTimeout)
	return o, errors.Join(problems...)
}

// withDefaults does the same for one sink, whose limits go before what was configured.
func (s SinkOptions) withDefaults(store storage.Store, claim storage.Claim) (SinkOptions, error) {
	if isNil(s.Sink) {
		return s, fmt.Errorf("there is no sink (%T): give what its New returned, once its error was looked at; those of inproc need a function", s.Sink)
	}
	if _, isTx := s.Sink.(sinks.TxSink); isTx {
		if _, ok := store.(storage.TxStore); !ok {
			return s, errors.New("a transactional handler needs a store over a SQL database")
		}
		s.Batch = cmp.Or(s.Batch, 1) // each message has a transaction of its own
	}
	if _, isExact := s.Sink.(sinks.Deduplicating); isExact {
		if _, ok := store.(storage.Journaler); !ok || claim != storage.ByLanes {
			return s, errors.New("a deduplicating sink needs a relay that claims by lanes, and a store that keeps journals")
		}
	}
	var limits sinks.Limits // of which 0 means none
	if limited, ok := s.Sink.(sinks.Limited); ok {
		limits = limited.Limits()
	}
	s.Batch = min(cmp.Or(s.Batch, 500), cmp.Or(limits.Messages, math.MaxInt))
	s.BatchBytes = min(cmp.Or(s.BatchBytes, 4<<20), cmp.Or(limits.Bytes, math.MaxInt))
	s.Workers = min(cmp.Or(s.Workers, 2), cmp.Or(limits.Workers, math.MaxInt))
	batches := 8 // of each worker
	if claim == storage.ByRows {
		batches = 4 // what one relay has claimed no other one can have
	}
	s.Buffer = cmp.Or(s.Buffer, max(s.Batch, min(batches*s.Batch*s.Workers, 8000)))
	s.BufferBytes = cmp.Or(s.BufferBytes, 16<<20)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, 20)
	s.BreakerThreshold = cmp.Or(s.BreakerThreshold, 5)
	s.ParkRateLimit = cmp.Or(s.ParkRateLimit, 50)
	for _, n := range []struct {
		name  string
		value int
	}{{"batch", s.Batch}, {"batch bytes", s.BatchBytes}, {"workers", s.Workers}, {"buffer", s.Buffer}, {"buffer bytes", s.BufferBytes}} {
		if n.value < 1 {
			return s, fmt.Errorf("%s %d: must be at least 1", n.name, n.value)
		}
	}
	switch s.OnPark = cmp.Or(s.OnPark, ContinueKey); {
	case s.OnPark != ContinueKey && s.OnPark != HoldKey:
		return s, fmt.Errorf("on park %q: must be %q or %q", s.OnPark, ContinueKey, HoldKey)
	case s.OnPark == HoldKey && claim == storage.ByRows:
		return s, fmt.Errorf("on park %q: keys have an order only where the table is claimed by lanes; claim it so, or let keys go on (%q)", s.OnPark, ContinueKey)
	}
	if s.Timeout <= 0 {
		return s, fmt.Errorf("timeout %v: must be positive", s.Timeout)
	}
	var backoffErr, reopenErr error
	s.Backoff, backoffErr = s.Backoff.withDefaults("backoff", 5*time.Minute)
	s.BreakerBackoff, reopenErr = s.BreakerBackoff.withDefaults("breaker_backoff", 15*time.Second)
	return s, errors.Join(backoffErr, reopenErr)
}

func (b Backoff) withDefaults(name string, longest time.Duration) (Backoff, error) {
	b.Min = cmp.Or(b.Min, 500*time.Millisecond)
	b.Max = cmp.Or(b.Max, max(longest, b.Min))
	if b.Min <= 0 || b.Max < b.Min {
		return b, fmt.Errorf("%s: min %v must be positive and not above max %v", name, b.Min, b.Max)
	}
	return b, nil
}

// draw returns a random wait of at most the n-th bound, n from 1 (full jitter).
func (b Backoff) draw(n int) time.Duration {
	bound := b.Max
	if shift := n - 1; shift < 30 && b.Min<<shift > 0 {
		bound = min(b.Max, b.Min<<shift)
	}
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// isNil also knows a nil pointer in an interface.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return value == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
