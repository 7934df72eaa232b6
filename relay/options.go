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

// DefaultRetention is the default of [Options].Retention.
const DefaultRetention = 24 * time.Hour

// KeepNothing as [Options].Retention deletes messages when they are delivered.
const KeepNothing time.Duration = -1

// Options configure a Relay. Sinks is required, and Routes if there is more than one sink. All other fields have defaults that
// suit production.
type Options struct {
	// Name identifies this relay among the relays of its table. A relay that starts with the name of another one takes over its
	// lanes immediately, without waiting until their leases expire. So set a name if a killed relay restarts elsewhere, as a
	// member of a StatefulSet does. If the other relay is still alive, it is fenced, and stands by until this one has stopped.
	// Defaults to the host name, the identity of the process, and a few random characters. On Linux, relays on the same host
	// then recognise that the process is gone.
	Name string

	// Version is shown in the table of relays. Defaults to "".
	Version string

	// Claim is the way of claiming messages: [storage.ByLanes], the default, keeps the order per key; [storage.ByRows] doesn't.
	// The first relay stores it with the table. A relay with another Claim doesn't start while others are alive.
	Claim storage.Claim

	// Sinks are the destinations, by name.
	Sinks map[string]SinkOptions

	// Routes map topics to sinks. Without routes, a single sink gets every topic. A message whose topic has no route waits.
	Routes []Route

	// Lease is how long a lane or a claimed row belongs to the relay unless the lease is renewed. Leases are renewed after a
	// third of it, or after 2 s if that is less. After a crash, the relay's messages wait until its leases expire. Defaults to 15
	// s; at least 1 s.
	Lease time.Duration

	// Poll is the longest time between two polls for new messages. While polls find messages, the next one follows after 7 ms.
	// Defaults to 200 ms; at least 1 ms.
	Poll time.Duration

	// Listener wakes the relay when the database notifies it of new messages. Defaults to none: the relay only polls, and
	// [Relay.Wake] wakes it. A drain doesn't use the Listener.
	Listener Listener

	// Join lets the relay share the messages with active relays that have other sinks or routes. Without it, the relay stands by
	// until these have stopped: it sends no messages and is healthy, and [Relay.StandbyReason] and the log give the reason. A
	// relay that is active stays active when others start. A relay doesn't stand by if relays with its own sinks and routes are
	// active.
	Join bool

	// Retention is how long delivered messages are kept. Defaults to 24 h; [KeepNothing] deletes them when they are delivered.
	Retention time.Duration

	// DrainTimeout is how long a stopping relay waits for the sends in flight. Defaults to 10 s.
	DrainTimeout time.Duration

	// Drain makes Run return when nothing is left that could be delivered now. Run returns nil only if no message is left that is
	// due. Otherwise its error gives the reason: a pause, a topic without a route, or a message that no read has found for 10 s.
	// Two kinds of messages don't count: messages of other relays' lanes, and of topics that aren't in Topics; and, by lanes,
	// messages that wait at each of their sinks for another message of their key that is not due or is parked. Run also fails if
	// the search for messages that are due fails for 10 s and at least 3 times.
	Drain bool

	// Pick is the order in which rows are claimed, and Topics limits the claim to these topics (none: all). Both apply to
	// [storage.ByRows] only. Pick defaults to [storage.Oldest].
	Pick   storage.Pick
	Topics []string

	// Observer receives events, for example for metrics. Defaults to [NoObserver].
	Observer Observer

	// Logger receives log lines for operators, without payloads and secrets. Defaults to slog.Default.
	Logger *slog.Logger

	// Tracer traces messages. The function New in relay/tracing makes one for OpenTelemetry. Defaults to none; then messages
	// keep the headers that they were written with.
	Tracer Tracer
}

// SinkOptions configure the use of a sink.
type SinkOptions struct {
	Sink sinks.Sink

	// Batch and BatchBytes are the most messages and bytes of payload of one call of Send. Default to 500 messages (1 for a
	// transactional handler) and 4 MiB. Limits of the sink itself apply, too.
	Batch      int
	BatchBytes int

	// Workers is the most concurrent calls of Send. By lanes, messages of one key are never in two calls at a time. Defaults to
	// 2, or the sink's limit.
	Workers int

	// Buffer and BufferBytes are the most messages and bytes of this sink in memory: waiting, in flight, or not yet settled.
	// Default to eight full batches for each worker (by rows four), at most 8,000, and 16 MiB. By lanes, messages in flight and
	// not yet settled, which are sent again if the relay dies, fill at most half of the buffer, or three batches for each worker
	// if that is more.
	Buffer      int
	BufferBytes int

	// Timeout is the time-out of a call of Send; for a handler of single messages, and other sinks that are [sinks.OneByOne], of
	// each message. Defaults to 30 s.
	Timeout time.Duration

	// MaxAttempts is the number of charged attempts after which a message is parked. Defaults to 20; negative means never.
	MaxAttempts int

	// BreakerThreshold is how many keys must fail without a delivery between for the destination to count as down, whatever it
	// answers. Then the breaker opens, and the sink is tried with one message at a time. Only the first failure of a message
	// counts, and a message without a key counts as a key. If k keys usually fail between two deliveries, the threshold is
	// multiplied by 1 + 4k, at most by 41. Each relay counts its own sends. Defaults to 5; negative means never, and then every
	// failure is charged.
	BreakerThreshold int

	// JudgeAloneAfter is how long a message may fail while no other message is delivered to its destination, before the message
	// itself counts as the cause. Until then it is tried again and charged nothing, its key waits, and after 5 s the sink is
	// reported as down. Afterwards the message is judged by its own answers: a rejection parks it, and another failure charges an
	// attempt. If another message is delivered between, the next failure counts. Failures with [sinks.ReasonConnection],
	// [sinks.ReasonThrottled], [sinks.ReasonAuth] or [sinks.ReasonConfig] never make the message the cause, nor do failures while
	// BreakerThreshold keys fail. Defaults to 30 min, but to [JudgeAtOnce] for rejections by a function of this process
	// (inproc.Permanent). [NeverJudgeAlone] waits for ever.
	JudgeAloneAfter time.Duration

	// ParkRateLimit is how many messages a relay may park for the sink within a minute while the sink refuses more messages than
	// it accepts. At the limit the breaker trips: it pauses the sink for all relays until an operator resumes it, and logs an
	// error. Each relay counts its own messages; each of two or more relays allows half of the limit. Invalid messages, which no
	// sink could accept, don't count. Defaults to 50; negative means no limit. A relay without the right to write controls pauses
	// the sink only for itself.
	ParkRateLimit int

	// OnPark says what happens to a key when one of its messages is parked: the next message is sent ([ContinueKey], the
	// default), or all later ones wait for an operator ([HoldKey], by lanes only). Messages without a key and expired messages
	// block no others. A change doesn't affect keys that are held already.
	OnPark OnPark

	// DeadLetter says where a copy of a message goes when the message is parked, including one that has expired. Each parking
	// writes one copy, as a new message with the same payload and key. It has the headers of the message, and
	// rowrelay-dead-letter-message-id, -topic, -sink, -reason, -error (up to 500 bytes), -attempts, -created-at and -parked-at.
	// The copy is written in the transaction that parks the message, and has the same guarantees as any other message; a copy
	// that is parked itself gets none. The relay needs the right to INSERT into the table. Defaults to nowhere.
	DeadLetter DeadLetter

	// Backoff is the back-off before the next attempt of a message. The wait is random, between 0 and a bound that starts at Min
	// and doubles with each attempt up to Max ("full jitter"). Default to 500 ms and 5 min.
	Backoff Backoff

	// BreakerBackoff is the back-off before an unavailable sink is opened again, and before the next attempt of a message that
	// failed and was charged nothing. Default to 500 ms and 15 s.
	BreakerBackoff Backoff
}

// Values of [SinkOptions].JudgeAloneAfter.
const (
	// JudgeAtOnce judges each failure by its own answer, unless messages of BreakerThreshold keys fail.
	JudgeAtOnce time.Duration = -1

	// NeverJudgeAlone never makes a message that fails alone the cause of its failures.
	NeverJudgeAlone time.Duration = math.MaxInt64

	defaultJudgeAloneAfter = 30 * time.Minute
)

// judgeAloneAfter returns JudgeAloneAfter for a message with this outcome.
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

// OnPark says what happens to a key when one of its messages is parked.
type OnPark string

// ContinueKey sends the next messages of the key. HoldKey makes them wait, without using the relay's memory, until an operator
// requeues the parked message, which is sent first then, or skips or discards it.
const (
	ContinueKey OnPark = "continue"
	HoldKey     OnPark = "hold"
)

// DeadLetter is the destination of a sink's dead letters: a topic or a sink. The zero value is none.
type DeadLetter struct {
	// Topic is the topic of the dead letters. It needs a route.
	Topic string

	// Sink gets the dead letters regardless of routes. They keep the topic of their message.
	Sink string
}

// Backoff is a random wait whose upper bound starts at Min and doubles up to Max.
type Backoff struct {
	Min, Max time.Duration
}

// Route maps topics to sinks. Exactly one of Topic, Prefix and Pattern must be set. If several routes match a topic, an exact
// topic wins over a prefix, a longer prefix over a shorter one, and a prefix over a pattern. The first matching pattern wins.
type Route struct {
	Topic   string // exactly this topic; "*" matches every topic that no other route matches
	Prefix  string // topics with this prefix
	Pattern string // topics that this regular expression (RE2) matches as a whole
	Sink    string // a name in Options.Sinks

	// Sinks, instead of Sink, are several sinks. Each gets every message, in its own order per key, and has its own attempts,
	// back-off, breaker and parked messages. A message is done when it is done for all of them. By lanes only. The sinks of
	// routes with the same topic, prefix or pattern are combined.
	//
	// If a sink is added or removed, pending messages go to the new set of sinks if none of their sinks has delivered them or
	// failed yet, and otherwise to the sinks that they had then.
	Sinks []string

	// Also adds the sinks of this route to the sinks of the topic's own route, instead of competing with it.
	Also bool

	// ExpireAfter is how long after it was written (created_at) a message expires, by the database's clock. If the message has an
	// ExpiresAt, the earlier time counts. The relay checks this when it reads a message and when it takes it for sending.
	// Defaults to 0: never.
	ExpireAfter time.Duration

	// OnExpire says what happens to a message that has expired, by ExpireAfter or by its own ExpiresAt. Defaults to [ParkExpired].
	OnExpire OnExpire
}

// OnExpire says what happens to an expired message.
type OnExpire string

// Values of OnExpire. Both are reported to the Observer and logged.
const (
	// ParkExpired parks the message for an operator, with the state error and a last_error that begins with [storage.Expired]. If
	// it is requeued, it is sent regardless of its age.
	ParkExpired OnExpire = "park"

	// DiscardExpired deletes the message. It is not kept like a delivered one.
	DiscardExpired OnExpire = "discard"
)

// Listener waits for notifications of new messages.
type Listener interface {
	// Listen calls wake after each notification, and once whenever it has started to listen, since it may have missed
	// notifications before. It returns when its context ends, or with an error if it can't listen. Then the relay polls, and
	// calls Listen again after a pause.
	Listen(ctx context.Context, wake func()) error
}

// withDefaults sets the defaults, and returns all problems.
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
		return s, fmt.Errorf("the sink is nil (%T): pass what its New returned, after checking its error; sinks of inproc need a function", s.Sink)
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
	var limits sinks.Limits // 0 means no limit
	if limited, ok := s.Sink.(sinks.Limited); ok {
		limits = limited.Limits()
	}
	s.Batch = min(cmp.Or(s.Batch, 500), cmp.Or(limits.Messages, math.MaxInt))
	s.BatchBytes = min(cmp.Or(s.BatchBytes, 4<<20), cmp.Or(limits.Bytes, math.MaxInt))
	s.Workers = min(cmp.Or(s.Workers, 2), cmp.Or(limits.Workers, math.MaxInt))
	batches := 8 // for each worker
	if claim == storage.ByRows {
		batches = 4 // other relays can't send the rows that this one has claimed
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
		return s, fmt.Errorf("on park %q: keys have an order only if the table is claimed by lanes; use claim lanes or on park %q", s.OnPark, ContinueKey)
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

// draw returns a random wait between 0 and the n-th bound, n from 1 (full jitter).
func (b Backoff) draw(n int) time.Duration {
	bound := b.Max
	if shift := n - 1; shift < 30 && b.Min<<shift > 0 {
		bound = min(b.Max, b.Min<<shift)
	}
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// isNil reports whether the value is nil, or an interface with a nil pointer.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return value == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
