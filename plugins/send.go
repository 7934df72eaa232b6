package plugins

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

var (
	noOutcome = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the plug-in returned no outcome for this message")
)

// delivery is the state of one running Send.
type delivery struct {
	sink     *Sink
	process  *process
	limits   sinkLimits
	batch    []sinks.Message
	outcomes []sinks.Outcome

	at      int             // index of the first message that is not in a part yet
	stopped map[string]bool // keys with a message that was not delivered; usually nil
	down    bool            // the destination is unavailable
}

// Send passes a batch to the plug-in, in parts that respect the plug-in's limits. To
// preserve the order, it sends a part only after the plug-in has answered the
// previous part.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	d := &delivery{sink: s, process: s.process, limits: s.promise, batch: batch, outcomes: make([]sinks.Outcome, len(batch))}
	s.mu.Unlock()
	for d.at < len(batch) {
		part := d.next(ctx)
		if len(part.messages) > 0 {
			d.hand(ctx, part)
		}
	}
	for i, o := range d.outcomes {
		if o.Detail != "" || o.Receipt != "" {
			d.outcomes[i].Detail, d.outcomes[i].Receipt = s.redact.Redact(o.Detail), s.redact.Redact(o.Receipt)
		}
	}
	return d.outcomes
}

// part has the messages of one request to the plug-in.
type part struct {
	messages []int // indexes in the batch
	wire     []*pluginv1.Message
	size     int             // total size of the encoded messages, in bytes
	keys     map[string]bool // set only if the plug-in promises no order
	payload  int             // total size of the payloads, in bytes
}

func (p part) ids(batch []sinks.Message) (ids []string) {
	for _, index := range p.messages {
		ids = append(ids, batch[index].ID)
	}
	return ids
}

// perRequest is an upper bound for the size of an encoded request without its
// messages.
const perRequest = 64

// next returns the next part of the batch. A part ends before a message that would exceed a limit or must wait for an
// earlier message. next records the outcomes of messages that can't be sent.
func (d *delivery) next(ctx context.Context) (p part) {
	limits, most := d.limits, d.limits.requestBytes-perRequest
	for ; d.at < len(d.batch); d.at++ {
		m := &d.batch[d.at]
		if outcome := d.held(ctx); outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		suspect := d.sink.suspects.has(m.ID) // sent alone, see suspects
		if n := len(p.messages); n > 0 && (suspect || p.keys[m.Key] ||
			limits.messages > 0 && n >= limits.messages || limits.bytes > 0 && p.payload+len(m.Payload) > limits.bytes) {
			return p
		}
		wire, err := messageToWire(m)
		if err != nil {
			d.set(d.at, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
			continue
		}
		size := sizeInRequest(wire)
		if size > most {
			d.set(d.at, sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message has %d bytes, more than the plug-in's limit of %d", size, most)))
			continue
		}
		if p.size+size > most {
			return p
		}
		p.messages, p.wire, p.size, p.payload = append(p.messages, d.at), append(p.wire, wire), p.size+size, p.payload+len(m.Payload)
		if limits.order == sinks.OrderNone && m.Key != "" {
			if p.keys == nil {
				p.keys = map[string]bool{}
			}
			p.keys[m.Key] = true
		}
		if suspect {
			d.at++
			return p
		}
	}
	return p
}

// held returns nil if the next message can be sent now. Otherwise it returns the
// message's outcome. It doesn't check the content of the message.
func (d *delivery) held(ctx context.Context) *sinks.Outcome {
	key := d.batch[d.at].Key
	switch {
	case d.process == nil || d.limits.requestBytes == 0:
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, errNotOpen.Error())
		return &o
	case d.down || d.stopped[key]:
		return new(sinks.Blocked())
	case !d.process.alive():
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, d.process.exitError().Error())
		return &o
	case ctx.Err() != nil:
		return new(sinks.Cancelled())
	}
	return nil
}

// hand sends a part to the plug-in and records the outcomes.
func (d *delivery) hand(ctx context.Context, part part) {
	if !d.limits.enter(ctx) {
		d.note(part, func(int) sinks.Outcome { return sinks.Cancelled() })
		return
	}
	defer d.limits.leave()
	response, err := d.process.send(ctx, &pluginv1.SendRequest{SendId: d.sink.lastSend.Add(1), Messages: part.wire})
	if err != nil {
		failed := d.failed(ctx, part, err)
		d.note(part, func(int) sinks.Outcome { return failed })
		return
	}
	if d.sink.suspects.any() {
		d.sink.suspects.clear(part.ids(d.batch))
	}
	d.answered(part, response.GetOutcomes())
}

// answered records the plug-in's outcomes, one for each message. If the plug-in returned too few outcomes, the
// remaining messages get the outcome noOutcome.
func (d *delivery) answered(part part, outcomes []*pluginv1.Outcome) {
	d.note(part, func(i int) sinks.Outcome {
		if i >= len(outcomes) {
			return noOutcome
		}
		return outcomeFromWire(outcomes[i])
	})
}

// failed returns the outcome of the messages in a part whose request failed with err.
func (d *delivery) failed(ctx context.Context, part part, err error) sinks.Outcome {
	switch {
	case d.process.hasEnded(err):
		d.sink.suspects.add(part.ids(d.batch))
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, d.process.exitError().Error())
	case ctx.Err() != nil:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "the plug-in did not answer in time")
	case status.Code(err) == codes.ResourceExhausted && len(part.messages) == 1:
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, "the plug-in can't receive a message of this size: "+said(err).Error())
	case status.Code(err) == codes.Unavailable:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the connection to the plug-in broke: "+said(err).Error())
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "the plug-in answered with an error: "+said(err).Error())
}

// note records the outcomes of a part, in order. If a message was not delivered, the later undelivered messages of
// its key get the outcome blocked. If the sink delivers all messages of a part or none, only the first failed message
// keeps its outcome and the others are blocked, so that at most one message is charged.
func (d *delivery) note(p part, outcome func(i int) sinks.Outcome) {
	failed := false
	for i, index := range p.messages {
		o := outcome(i)
		held := d.stopped[d.batch[index].Key] || failed && d.limits.order == sinks.OrderAtomic
		if held && o.Result != sinks.Delivered {
			o = sinks.Blocked()
		}
		failed = failed || o.Result != sinks.Delivered
		d.set(index, o)
	}
}

// set records an outcome and updates the state for the messages after it.
func (d *delivery) set(index int, o sinks.Outcome) {
	d.outcomes[index] = o
	switch key := d.batch[index].Key; {
	case o.Result == sinks.Delivered:
		if !d.process.delivered.Load() {
			d.process.delivered.Store(true)
		}
		return
	case key != "":
		if d.stopped == nil {
			d.stopped = map[string]bool{}
		}
		d.stopped[key] = true
	}
	if o.Result == sinks.Unavailable {
		d.down = true
	}
}

// answerGrace is how long the relay waits, after the context has ended, for the outcomes that a plug-in already has.
// Without this wait, the messages would have no outcome and could be charged an attempt.
const answerGrace = 250 * time.Millisecond

// send calls the plug-in's Send. When the context ends, it calls the plug-in's Cancel, waits at most answerGrace for
// the answer, and then gives up.
func (p *process) send(ctx context.Context, request *pluginv1.SendRequest) (*pluginv1.SendResponse, error) {
	request.TimeoutMs = remaining(ctx)
	calling, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		defer end()
		limited, cancel := context.WithTimeout(calling, answerGrace)
		defer cancel()
		_, _ = p.sink.Cancel(limited, &pluginv1.CancelRequest{SendId: request.GetSendId()})
		<-limited.Done()
	})
	defer stop()
	return p.sink.Send(calling, request)
}

// hasEnded reports, after a call that failed with err, whether the process has
// exited. If the connection broke, it waits up to three seconds for the exit,
// because the relay may notice the broken connection before the exit.
func (p *process) hasEnded(err error) bool {
	if status.Code(err) != codes.Unavailable {
		return !p.alive()
	}
	return p.endsSoon()
}

// endsSoon reports whether the process exits within three seconds. Callers use it if
// something else, such as a broken connection, indicates that the process is ending.
func (p *process) endsSoon() bool {
	timer := time.NewTimer(drainGrace + time.Second)
	defer timer.Stop()
	select {
	case <-p.gone():
		return true
	case <-timer.C:
		return false
	}
}

// suspects are the messages that a plug-in was handling when it died: one of them may
// have killed it. Each of these messages is sent alone until the plug-in has returned
// its outcome, so that only a message that kills the plug-in is charged again.
type suspects struct {
	count atomic.Int64 // read without the lock, so that the usual case of 0 costs little
	mu    sync.Mutex
	ids   map[string]struct{}
}

// maxSuspects limits how many suspects are kept in memory.
const maxSuspects = 10_000

func (s *suspects) add(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	for _, id := range ids {
		if len(s.ids) < maxSuspects {
			s.ids[id] = struct{}{}
		}
	}
	s.count.Store(int64(len(s.ids)))
}

func (s *suspects) any() bool { return s.count.Load() > 0 }

func (s *suspects) has(id string) bool {
	if !s.any() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

func (s *suspects) clear(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.ids, id)
	}
	s.count.Store(int64(len(s.ids)))
}
