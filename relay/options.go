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

// KeepNothing is a value of [Options].Retention: messages are deleted when they are delivered.
const KeepNothing time.Duration = -1

// Options configure a Relay. Sinks is required; so is Routes if there is more than one sink. All other fields have defaults that
// suit production.
type Options struct {
	// Name identifies this relay among the relays of its table. A relay that starts with another relay's name takes over that
	// relay's lanes immediately, without waiting until their leases expire. So set a name if a killed relay may restart on
	// another host, as in a Kubernetes StatefulSet. If the other relay is still alive, its writes are rejected, and it gets no
	// lanes until this one has stopped. Defaults to the host name, the identity of the process, and a few random characters. With
	// this default, other relays on the same Linux host notice when the process has ended, and take over its lanes before its
	// leases expire.
	Name string

	// Version is a text that the command `rowrelay status` shows to operators. Defaults to "".
	Version string

	// Claim selects how messages are claimed: [storage.ByLanes], the default, keeps the order per key; [storage.ByRows] doesn't.
	// The first relay stores its Claim in the database. A relay with another Claim doesn't start while other relays are alive.
	Claim storage.Claim

	// Sinks are the destinations, by name.
	Sinks map[string]SinkOptions

	// Routes map topics to sinks. Without routes, a single sink gets every topic. A message whose topic has no route waits.
	Routes []Route

	// Lease is how long a lane or a claimed row belongs to the relay unless the lease is renewed. Leases are renewed after a
	// third of this time, or after 2 s if that is less. After a crash, the relay's messages wait until its leases expire.
	// Defaults to 15 s; at least 1 s.
	Lease time.Duration

	// Poll is the longest time between two polls for new messages. After a poll that found messages, the next one follows within
	// 7 ms. Defaults to 200 ms; at least 1 ms.
	Poll time.Duration

	// Listener wakes the relay when the database notifies it of new messages. Defaults to none: the relay finds new
	// messages by polling, or when the program calls [Relay.Wake]. A drain doesn't use the Listener.
	Listener Listener

	// Join lets the relay share the messages with active relays that have other sinks or routes. Without Join, the relay stands
	// by until those relays have stopped. A relay that stands by sends no messages and is healthy; [Relay.StandbyReason] and the
	// log give the reason. An active relay stays active when others start. If relays with the same sinks and routes are active,
	// the relay doesn't stand by.
	Join bool

	// Retention is how long delivered messages are kept. Defaults to 24 h; [KeepNothing] deletes them when they are delivered.
	Retention time.Duration

	// DrainTimeout is how long a stopping relay waits for the sends in flight. Defaults to 10 s. If a sink ignores the end of its
	// context, the stop takes up to 6 s longer, or up to 16 s longer if the database doesn't answer either.
	DrainTimeout time.Duration

	// Drain makes Run return when nothing is left that could be delivered now. Run returns nil only if no due message is left.
	// Otherwise its error gives the reason, for example a pause, a topic without a route, or a due message that the relay's reads
	// have missed for 10 s. Some messages don't count: messages in other relays' lanes, and messages of topics that aren't in
	// Topics. If the relay claims by lanes, blocked messages don't count either. A message is blocked if, at each of its sinks,
	// another message of its key must be sent first and is parked or not due. Run also fails if the search for due messages has
	// failed for 10 s and at least 3 times.
	Drain bool

	// Pick is the order in which rows are claimed. Topics limits the claims to these topics; if it is empty, all topics are
	// claimed. Both apply only to [storage.ByRows]. Pick defaults to [storage.Oldest].
	Pick   storage.Pick
	Topics []string

	// Observer receives events, for example for metrics. Defaults to [NoObserver].
	Observer Observer

	// Logger receives log lines for operators, without payloads or secrets. Defaults to slog.Default.
	Logger *slog.Logger

	// Tracer traces messages. The package relay/tracing has one for OpenTelemetry. Defaults to none. Without a Tracer, messages
	// keep the headers that they were written with.
	Tracer Tracer
}

// SinkOptions configure how the relay uses a sink.
type SinkOptions struct {
	Sink sinks.Sink

	// Batch and BatchBytes are the maximum numbers of messages and of payload bytes in one call of Send. They default to 500
	// messages (1 for a transactional handler) and 4 MiB. The sink's own limits apply, too.
	Batch      int
	BatchBytes int

	// Workers is the maximum number of concurrent calls of Send. If the relay claims by lanes, messages of one key are never in
	// two calls at a time. Defaults to 2, or to the sink's limit if that is lower.
	Workers int

	// Buffer and BufferBytes limit the number and the total size of this sink's messages in memory. A message is in memory while it
	// waits, is in flight, or is not settled yet. Buffer defaults to eight full batches for each worker (four if the relay claims
	// by rows), but to at most 8,000 messages, or to one batch if a batch has more. BufferBytes defaults to 16 MiB. If the relay
	// dies, messages that were in flight or not settled yet are sent again. To limit their number, a relay that claims by lanes
	// lets such messages fill at most half of the buffer, or three batches for each worker if that is more.
	Buffer      int
	BufferBytes int

	// Timeout limits the duration of each call of Send. For a handler of single messages, or another sink that is
	// [sinks.OneByOne], it limits the time for each message. Defaults to 30 s.
	Timeout time.Duration

	// MaxAttempts is the number of charged attempts after which a message is parked. Defaults to 20; negative means no limit.
	MaxAttempts int

	// BreakerThreshold is how many keys must fail, without a delivery in between, before the relay considers the destination
	// down, regardless of its answers. Then the breaker opens, and later the sink is tried with one message at a time. Only a
	// message's first failure counts, and a message without a key counts as a key of its own. If on average k keys fail between two
	// deliveries, the threshold is multiplied by 1 + 4k, but by at most 41. Each relay counts only its own sends. Defaults to 5. If
	// it is negative, failing keys never open the breaker, and every failure is charged.
	BreakerThreshold int

	// JudgeAloneAfter applies to a message that keeps failing while no other message is delivered to its destination. After this
	// time the message itself counts as the cause. Until then its failed attempts are not charged, its key waits, and after 5 s
	// the sink is reported as down. Once JudgeAloneAfter has passed, the next answer decides: a rejection parks the
	// message, and any other failure charges an attempt. If another message is delivered in the meantime, the next failure is
	// charged. This time doesn't apply to failures with [sinks.ReasonConnection], [sinks.ReasonThrottled], [sinks.ReasonAuth] or
	// [sinks.ReasonConfig], or while at least BreakerThreshold keys fail. The default is 30 min; for rejections by a function of
	// this process (inproc.Permanent) it is [JudgeAtOnce]. [NeverJudgeAlone] means no limit.
	JudgeAloneAfter time.Duration

	// ParkRateLimit is how many of the sink's messages a relay may park within a minute while the sink refuses more messages than
	// it accepts. At the limit the breaker trips: it pauses the sink for all relays until an operator resumes it, and logs an
	// error. Each relay counts only its own messages. If two or more relays have the sink, each of them applies half of the limit.
	// Messages that no sink could accept, and messages that crash their handler, don't count. Defaults to 50; negative means no limit. If a relay lacks the
	// privilege to write controls, it pauses the sink only for itself.
	ParkRateLimit int

	// OnPark determines what happens to a key when one of its messages is parked. With [ContinueKey], the default, the next message
	// of the key is sent. With [HoldKey], all later messages of the key wait for an operator; HoldKey requires that the relay
	// claims by lanes. A parked message that has no key or has expired doesn't block other messages. A change of OnPark doesn't
	// affect keys that are held already.
	OnPark OnPark

	// DeadLetter is the destination of copies of parked messages, including messages that are parked because they have expired.
	// Each time a message is parked, one copy is written, as a new message with the same payload and key. The copy has the headers
	// of the message, and also rowrelay-dead-letter-message-id, -topic, -sink, -reason, -error (up to 500 bytes), -attempts,
	// -created-at and -parked-at. The copy is written in the transaction that parks the message, and has the same guarantees as any
	// other message. If a copy is parked itself, it gets no copy. The relay needs the privilege to INSERT into the table. Defaults
	// to none: no copies are written.
	DeadLetter DeadLetter

	// Backoff is the back-off before the next attempt of a message. The wait is random, between 0 and a bound that starts at Min
	// and doubles with each attempt up to Max ("full jitter"). Min and Max default to 500 ms and 5 min.
	Backoff Backoff

	// BreakerBackoff is the back-off before the relay calls an unavailable sink's Open again, and before the next attempt of a
	// message whose failed attempt was not charged. Min and Max default to 500 ms and 15 s.
	BreakerBackoff Backoff
}

// Values of [SinkOptions].JudgeAloneAfter.
const (
	// JudgeAtOnce treats a failed message as the cause of its failure immediately, unless at least BreakerThreshold keys fail.
	JudgeAtOnce time.Duration = -1

	// NeverJudgeAlone never treats a message that fails alone as the cause of its failures.
	NeverJudgeAlone time.Duration = math.MaxInt64

	defaultJudgeAloneAfter = 30 * time.Minute
)

// judgeAloneAfter returns the JudgeAloneAfter that applies to a message with this outcome.
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

// OnPark is what happens to a key when one of its messages is parked.
type OnPark string

// ContinueKey sends the next messages of the key. HoldKey makes them wait, without using the relay's memory, until an operator
// requeues, skips or discards the parked message. A requeued message is sent before the others.
const (
	ContinueKey OnPark = "continue"
	HoldKey     OnPark = "hold"
)

// DeadLetter is the destination of a sink's dead letters: a topic or a sink. With the zero value no dead letters are written.
type DeadLetter struct {
	// Topic is the topic of the dead letters. It needs a route.
	Topic string

	// Sink gets the dead letters regardless of routes. Dead letters keep the topic of their message.
	Sink string
}

// Backoff is a random wait. Its upper bound starts at Min and doubles with each attempt, up to Max.
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

	// Sinks names several sinks, instead of Sink. Each of them gets every message. Each has its own order per key, its own
	// attempts, back-off and breaker, and its own parked messages. A message is done when it is done for all of them. Several
	// sinks require that the relay claims by lanes. The sinks of routes with the same topic, prefix or pattern are combined.
	//
	// If a sink is added to the route or removed from it, a pending message goes to the new set of sinks if it has not been
	// delivered to any sink and has not failed yet. Every other pending message keeps the sinks that it had at its first delivery
	// or failure.
	Sinks []string

	// Also adds this route's sinks to the sinks of the topic's own route. Without Also, only one of the matching routes applies.
	Also bool

	// ExpireAfter is the age at which a message expires: the time since its created_at, on the database's clock. If the message
	// also has an ExpiresAt, it expires at the earlier of the two times. The relay checks this when it reads a message, and again
	// before a send. Defaults to 0: messages don't expire.
	ExpireAfter time.Duration

	// OnExpire determines what happens to a message that has expired, by ExpireAfter or by its own ExpiresAt. Defaults to
	// [ParkExpired].
	OnExpire OnExpire
}

// OnExpire is what happens to an expired message.
type OnExpire string

// Values of OnExpire. With either value, the relay reports each expired message to the Observer, and logs expired messages, at
// most one line in 10 s for each sink.
const (
	// ParkExpired parks the message for an operator, with the state error and a last_error that begins with [storage.Expired]. If
	// the message is requeued, it is sent regardless of its age.
	ParkExpired OnExpire = "park"

	// DiscardExpired deletes the message, even if Retention keeps delivered messages.
	DiscardExpired OnExpire = "discard"
)

// Listener waits for notifications of new messages.
type Listener interface {
	// Listen calls wake after each notification. It also calls wake each time it starts to listen, since it may have missed
	// earlier notifications. Listen returns when its context ends, or with an error if it can't listen. After an error the relay
	// only polls, and calls Listen again after a pause.
	Listen(ctx context.Context, wake func()) error
}

// withDefaults sets the defaults, and returns an error that lists all invalid options.
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
	reject(o.Claim == storage.ByLanes && o.Pick != storage.Oldest, "pick %q: only a relay that claims by rows can pick; lanes are read in the order of ids", o.Pick)
	reject(o.Claim == storage.ByLanes && len(o.Topics) > 0, "topics: only a relay that claims by rows can be limited to topics; a relay that claims by lanes must see every message of a lane")
	reject(o.Lease < time.Second, "lease %v: must be at least 1s", o.Lease)
	reject(o.Poll < time.Millisecond, "poll %v: must be at least 1ms", o.Poll)
	reject(o.Retention < 0 && o.Retention != KeepNothing, "retention %v: must not be negative", o.Retention)
	reject(o.DrainTimeout < 0, "drain timeout %v: must not be negative", o.DrainTimeout)
	return o, errors.Join(problems...)
}

// withDefaults sets the defaults of one sink, and checks its options. The sink's own limits override larger configured values.
func (s SinkOptions) withDefaults(store storage.Store, claim storage.Claim) (SinkOptions, error) {
	if isNil(s.Sink) {
		return s, fmt.Errorf("the sink is nil (%T): pass the sink that New returned, after checking the error; sinks of inproc need a function", s.Sink)
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
		batches = 4 // fewer, because other relays can't send the rows that this relay has claimed
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

// draw returns a random wait between 0 and the n-th bound (full jitter). n starts at 1.
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
