package relay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// breakerAnswers has the sink's answers by the names that TestBreaker uses. The prefix "x/" of a name means that the answer
// comes from the destination x.
var breakerAnswers = map[string]sinks.Outcome{
	"ok":        sinks.Ok(""),
	"500":       sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500"),
	"502":       sinks.Fail(sinks.Retry, sinks.ReasonConnection, "502"),
	"422":       sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422"),
	"permanent": {Result: sinks.Reject, Reason: sinks.ReasonRefused, Err: errors.New("permanent")},
	"invalid":   sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "malformed"),
	"down":      sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused"),
	"lost":      sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the answer was lost"),
	"postponed": sinks.Postpone(sinks.ReasonBusy, "later", time.Second),
	"unsent":    sinks.Blocked(),
}

var stateNames = map[breakerState]string{breakerOpen: "open", breakerProbing: "probing", breakerClosed: "closed", breakerSuspect: "suspect", breakerTripped: "tripped"}

// breakerStep is one batch and its result. The batch "k1:500 k2:ok" has two messages, each with its key and the sink's answer.
// Its verdicts are "suspend done", for example; "retry+1" is a charged retry. The field state is the breaker's state after the
// batch.
type breakerStep struct {
	after  time.Duration
	batch  string
	begun  int  // how many steps before this one the send of its batch began
	cut    bool // the send's context had ended
	paused bool
	want   string
	state  string
}

// TestBreaker checks the breaker's verdict on each answer, by its state and by the earlier answers.
func TestBreaker(t *testing.T) {
	t.Parallel()
	defaults := SinkOptions{MaxAttempts: 3, BreakerThreshold: 3, ParkRateLimit: 3}
	with := func(change func(*SinkOptions)) SinkOptions {
		options := defaults
		change(&options)
		return options
	}
	for name, c := range map[string]struct {
		options SinkOptions
		steps   []breakerStep
	}{
		"delivered": {defaults, []breakerStep{{batch: "a:ok b:ok", want: "all", state: "closed"}}},
		"a rejection is parked when it repeats after a delivery": {defaults, []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422", want: "park", state: "closed"},
		}},
		"a delivery of the same batch doesn't count": {defaults, []breakerStep{ // the delivery may have been made after the outage in which the message failed
			{batch: "a:422 b:ok", want: "suspend done", state: "closed"},
			{batch: "a:422 b:ok", want: "suspend done", state: "closed"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422 b:ok", want: "park done", state: "closed"},
		}},
		"a rejection after a failure is the first one": {defaults, []breakerStep{
			{batch: "a:500", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422", want: "park", state: "closed"},
		}},
		"a failure is charged when it repeats after a delivery, and parked in the end": {defaults, []breakerStep{
			{batch: "a:500", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:500", want: "retry+1", state: "closed"},
			{batch: "a:500", want: "suspend", state: "suspect"}, // the message was read from the table again
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:500", want: "retry+1", state: "closed"},
			{batch: "a:500", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:500", want: "park", state: "closed"},
		}},
		"without a delivery no repetition counts": {defaults, []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "a:500", want: "suspend", state: "suspect"},
			{after: 29 * time.Minute, batch: "a:422", want: "suspend", state: "suspect"},
		}},
		"a delivery by a send that began before the failure doesn't count": {defaults, []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "b:ok", begun: 1, want: "all", state: "closed"},
			{batch: "a:422", want: "suspend", state: "suspect"},
		}},
		"a delivery while the message is being sent doesn't count": {defaults, []breakerStep{ // the message may have failed before the delivery
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422", begun: 1, want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422", want: "park", state: "closed"},
		}},
		"a message that fails alone is judged after 30 minutes": {defaults, []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "b:500", want: "suspend", state: "suspect"},
			{after: 30 * time.Minute, batch: "a:422", want: "park", state: "suspect"},
			{batch: "b:500", want: "retry+1", state: "suspect"},
			{batch: "b:500", want: "retry+1", state: "suspect"}, // the message was read from the table again
			{batch: "b:500", want: "park", state: "suspect"},
			{batch: "c:422", want: "suspend", state: "open"}, // messages of three keys have failed
		}},
		"an unmistakable answer is never judged alone": {defaults, []breakerStep{
			{batch: "a:502", want: "suspend", state: "suspect"},
			{after: 24 * time.Hour, batch: "a:502", want: "suspend", state: "suspect"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:502", want: "retry+1", state: "closed"},
		}},
		"JudgeAtOnce": {with(func(o *SinkOptions) { o.JudgeAloneAfter = JudgeAtOnce }), []breakerStep{
			{batch: "a:422", want: "park", state: "closed"},
			{batch: "b:500", want: "retry+1", state: "closed"},
			{batch: "c:422", want: "suspend", state: "open"},
		}},
		"NeverJudgeAlone": {with(func(o *SinkOptions) { o.JudgeAloneAfter = NeverJudgeAlone }), []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{after: 1000 * time.Hour, batch: "a:422", want: "suspend", state: "suspect"},
		}},
		"a function's permanent error is judged immediately by default": {defaults, []breakerStep{
			{batch: "a:permanent", want: "park", state: "closed"},
		}},
		"a function's permanent error with JudgeAloneAfter": {with(func(o *SinkOptions) { o.JudgeAloneAfter = time.Minute }), []breakerStep{
			{batch: "a:permanent", want: "suspend", state: "suspect"},
			{after: time.Minute, batch: "a:permanent", want: "park", state: "suspect"},
		}},
		"no threshold": {with(func(o *SinkOptions) { o.BreakerThreshold = -1 }), []breakerStep{
			{batch: "a:422 b:500 c:422 d:500 e:422", want: "park retry+1 park retry+1 park", state: "closed"},
		}},
		"three failing keys open the breaker": {defaults, []breakerStep{
			{batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "a:422", want: "suspend", state: "suspect"}, // each key counts once
			{batch: "b:500 c:422", want: "suspend suspend", state: "open"},
			{batch: "", state: "probing"},
			{after: time.Hour, batch: "a:422", want: "suspend", state: "open"}, // other messages fail, too
			{batch: "", state: "probing"},
			{batch: "d:500", want: "suspend", state: "open"},
			{batch: "", state: "probing"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:422 c:422", want: "suspend suspend", state: "suspect"}, // they failed while all messages failed, so each is parked only after three more rejections
			{batch: "e:ok", want: "all", state: "closed"}, {batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "e:ok", want: "all", state: "closed"}, {batch: "a:422", want: "suspend", state: "suspect"},
			{batch: "e:ok", want: "all", state: "closed"}, {batch: "a:422", want: "park", state: "closed"},
		}},
		"charged messages don't open the breaker": {defaults, []breakerStep{
			{batch: "a:500 b:500", want: "suspend suspend", state: "suspect"},
			{batch: "x:ok", want: "all", state: "closed"},
			{batch: "a:500 b:500 x:ok", want: "retry+1 retry+1 done", state: "closed"},
			{batch: "a:500 b:500 c:500", want: "suspend suspend suspend", state: "suspect"},
			{batch: "d:500", want: "suspend", state: "suspect"},
			{batch: "e:500", want: "suspend", state: "open"},
		}},
		"unavailable": {defaults, []breakerStep{
			{batch: "a:down b:unsent", want: "back back", state: "open"},
			{batch: "", state: "probing"},
			{batch: "a:down", want: "back", state: "open"},
			{batch: "", state: "probing"},
			{batch: "a:500", want: "suspend", state: "suspect"}, // the sink has answered, so it isn't unavailable
			{batch: "b:down", want: "back", state: "open"},
		}},
		"a failure before the breaker opened isn't repeated after it": {defaults, []breakerStep{
			{batch: "a:500", want: "suspend", state: "suspect"},
			{batch: "b:down", want: "back", state: "open"},
			{batch: "", state: "probing"},
			{batch: "b:ok", want: "all", state: "closed"},
			{batch: "a:500", want: "suspend", state: "suspect"},
		}},
		"an answer to a send that began before the breaker opened": {defaults, []breakerStep{
			{batch: "a:422 b:422 c:422", want: "suspend suspend suspend", state: "open"},
			{batch: "d:ok e:422", begun: 1, want: "done suspend", state: "open"},
		}},
		"a whole batch is unsent": {defaults, []breakerStep{{batch: "a:unsent b:unsent", want: "back back", state: "open"}}},
		"a stop":                  {defaults, []breakerStep{{batch: "a:lost b:unsent", cut: true, want: "retry back", state: "closed"}}},
		"postponed":               {defaults, []breakerStep{{batch: "a:postponed", want: "retry", state: "closed"}}},
		"probing, postponed": {defaults, []breakerStep{
			{batch: "a:down", want: "back", state: "open"}, {batch: "", state: "probing"}, {batch: "a:postponed", want: "retry", state: "closed"},
		}},
		"invalid": {defaults, []breakerStep{{batch: "a:invalid b:invalid c:invalid d:invalid e:invalid", want: "park park park park park", state: "closed"}}},
		"behind another message of its key": {defaults, []breakerStep{
			{batch: "a:500 a2:unsent a3:422", want: "suspend back back", state: "suspect"},
			{batch: "a:ok", want: "all", state: "closed"},
			{batch: "a3:422", want: "park", state: "closed"}, // the earlier rejection of a3 counts
		}},
		"destinations have their own evidence": {defaults, []breakerStep{
			{batch: "a:x/422 b:y/ok", want: "suspend done", state: "closed"},
			{batch: "a:x/422 b:y/ok", want: "suspend done", state: "closed"},
			{batch: "c:x/ok", want: "all", state: "closed"},
			{batch: "a:x/422", want: "park", state: "closed"},
		}},
		"no message is judged alone while three keys of its destination fail": {defaults, []breakerStep{
			{batch: "a:x/422 b:x/422 c:x/422", want: "suspend suspend suspend", state: "closed"},
			{after: time.Hour, batch: "a:x/422 d:x/422", want: "suspend suspend", state: "closed"},
		}},
		"too many are parked": {with(func(o *SinkOptions) { o.JudgeAloneAfter = JudgeAtOnce }), []breakerStep{
			{batch: "a:422 b:422 x:ok", want: "park park done", state: "closed"},
			{batch: "c:422 d:422 x:ok", want: "park back done", state: "tripped"},
			{batch: "e:down", want: "back", state: "tripped"},
		}},
		"many are parked, but more are delivered": {with(func(o *SinkOptions) { o.JudgeAloneAfter = JudgeAtOnce }), []breakerStep{
			{batch: "a:422 b:422 x:ok y:ok z:ok", want: "park park done done done", state: "closed"},
			{batch: "c:422 d:422 x:ok y:ok z:ok", want: "park park done done done", state: "closed"},
		}},
		"many are parked over a longer time": {with(func(o *SinkOptions) { o.JudgeAloneAfter = JudgeAtOnce }), []breakerStep{
			{batch: "a:422 b:422 x:ok", want: "park park done", state: "closed"},
			{after: time.Minute, batch: "c:422 d:422 x:ok", want: "park park done", state: "closed"},
		}},
		"nothing is parked while the sink is paused": {with(func(o *SinkOptions) { o.JudgeAloneAfter = JudgeAtOnce }), []breakerStep{
			{batch: "a:422", paused: true, want: "back", state: "closed"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBreaker(&c.options)
			now, items, keys := time.Now(), map[string]*item{}, map[string]*key{}
			b.opened(nil, now)
			batches := make([]sent, len(c.steps))
			for i, s := range c.steps {
				batches[i] = sent{cut: s.cut, paused: s.paused}
				for _, pair := range strings.Fields(s.batch) {
					name, answer, _ := strings.Cut(pair, ":")
					if items[name] == nil {
						k := name[:1]
						if keys[k] == nil {
							keys[k] = &key{}
						}
						items[name] = &item{queue: &sinkQueue{}, key: keys[k], row: storage.Row{ID: int64(len(items)), Message: outbox.Message{Key: k}}}
					}
					destination, rest, found := strings.Cut(answer, "/")
					if !found {
						destination, rest = "", answer
					}
					outcome := breakerAnswers[rest]
					outcome.Destination = destination
					batches[i].items, batches[i].outcomes = append(batches[i].items, items[name]), append(batches[i].outcomes, outcome)
				}
			}
			for i, s := range c.steps {
				now = now.Add(s.after)
				if s.batch == "" {
					b.opened(nil, now)
				}
				for later, other := range c.steps {
					if later-other.begun == i {
						batches[later].turn = b.begin(batches[later].items)
					}
				}
				batch := batches[i]
				var got []string
				if s.batch != "" {
					verdicts, _ := b.judge(batch, now)
					if verdicts == nil {
						got = []string{"all"}
					}
					for i, v := range verdicts {
						text := map[action]string{done: "done", retry: "retry", park: "park", suspend: "suspend", back: "back"}[v.action]
						if v.action == retry {
							batch.items[i].suspension = nil // a retry leaves memory, and is read again without its earlier failures
							if v.charged > 0 {
								batch.items[i].row.Attempts++
								text += fmt.Sprint("+", v.charged)
							}
						}
						got = append(got, text)
					}
				}
				if text := strings.Join(got, " "); text != s.want || stateNames[b.state] != s.state {
					t.Errorf("step %d, %q: %s, then %s; want %s, then %s", i+1, s.batch, text, stateNames[b.state], s.want, s.state)
				}
			}
		})
	}
}

// If some keys usually fail between two deliveries, more consecutive failures are needed to open the breaker.
func TestThresholdGrowsWithUsualFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		usual   float64
		fresh   int
		evident bool
	}{{0, 4, false}, {0, 5, true}, {3, 64, false}, {3, 65, true}, {mostUsual, 204, false}, {mostUsual, 205, true}} {
		b, d := breaker{options: &SinkOptions{BreakerThreshold: 5}}, &destination{fresh: map[string]struct{}{}, usual: c.usual}
		for i := range c.fresh {
			d.fresh[fmt.Sprint(i)] = struct{}{}
		}
		if got := b.isEvident(d); got != c.evident {
			t.Errorf("%+v: evident %v", c, got)
		}
	}
}

// A sink that has been suspect for five seconds is reported as down, with the last answer.
func TestLongSuspectSinkIsReportedDown(t *testing.T) {
	t.Parallel()
	b, now := newBreaker(&SinkOptions{BreakerThreshold: 5}), time.Now()
	b.opened(nil, now)
	b.judge(sent{items: []*item{{queue: &sinkQueue{}}}, outcomes: []sinks.Outcome{breakerAnswers["422"]}}, now)
	if n := b.overdue(now.Add(suspectFor - 1)); n.down != nil {
		t.Errorf("too early: %+v", n.down)
	}
	if n := b.overdue(now.Add(suspectFor)); n.down == nil || n.down.Reason != sinks.ReasonRefused || !strings.Contains(n.down.Detail, "422") {
		t.Errorf("%+v", n.down)
	}
}

// A message that left memory as a retry, and returns as a new item, counts as having failed before. If there are too many such
// messages, some are forgotten.
func TestFailuresAreRememberedAfterEviction(t *testing.T) {
	t.Parallel()
	options := SinkOptions{MaxAttempts: 3, BreakerThreshold: 3, ParkRateLimit: 3}
	b := newBreaker(&options)
	b.opened(nil, time.Time{})
	now := time.Unix(1000, 0)
	send := func(it *item, answer sinks.Outcome) action {
		verdicts, _ := b.judge(sent{turn: b.begin([]*item{it}), items: []*item{it}, outcomes: []sinks.Outcome{answer}, relays: 1}, now)
		if verdicts == nil {
			return done
		}
		return verdicts[0].action
	}
	row := func(id int64) *item {
		return &item{queue: &sinkQueue{}, row: storage.Row{ID: id, Message: outbox.Message{ID: fmt.Sprint("message ", id)}}}
	}
	first := row(1)
	if got := send(first, breakerAnswers["422"]); got != suspend {
		t.Fatalf("the first rejection: %v", got)
	}
	b.remember(first)
	if got := send(row(2), breakerAnswers["ok"]); got != done {
		t.Fatalf("the other message: %v", got)
	}
	if refused := b.minute.refused; refused != 1 {
		t.Errorf("%d messages were refused, want 1", refused)
	}
	if got := send(row(1), breakerAnswers["422"]); got != park {
		t.Errorf("the repeated rejection: %v", got)
	}
	for id := range int64(mostPutOff + 10) {
		it := row(id)
		it.suspension = &suspension{}
		b.remember(it)
	}
	if len(b.putOff) != mostPutOff {
		t.Errorf("%d messages are remembered, want %d", len(b.putOff), mostPutOff)
	}
}
