package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// batch is the state of one Send.
type batch struct {
	messages []sinks.Message
	outcomes []sinks.Outcome
	full     []*destination // by message: the destination, if the message was nacked or held back
	began    time.Time
	next     []int // by message: the next message of its key; 0 if none
}

// Send publishes the messages of a batch, all messages of a key through the same
// connection.
func (s *Sink) Send(ctx context.Context, messages []sinks.Message) []sinks.Outcome {
	b := &batch{messages: messages, outcomes: make([]sinks.Outcome, len(messages)), next: make([]int, len(messages)), full: make([]*destination, len(messages)), began: time.Now()}
	parts := s.split(ctx, b)
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(p.run)
	}
	parts[0].run()
	others.Wait()
	s.apart(b)
	return b.outcomes
}

// split distributes the messages to the connections and returns the parts that
// have messages. Only the first message of each key is ready to be published.
func (s *Sink) split(ctx context.Context, b *batch) []*batchPart {
	all, last := make([]*batchPart, len(s.links)), make(map[string]int, len(b.messages))
	var parts []*batchPart
	for i := range b.messages {
		key := b.messages[i].Key
		before, follows := last[key]
		if key != "" {
			last[key] = i
			if follows {
				b.next[before] = i
				continue
			}
		}
		at := i % len(s.links)
		if key != "" {
			at = int(maphash.String(s.seed, key) % uint64(len(s.links)))
		}
		if all[at] == nil {
			all[at] = newPart(ctx, s, s.links[at], b)
			parts = append(parts, all[at])
		}
		all[at].ready.push(i)
	}
	return parts
}

// batchPart has the messages of a batch for one connection. A single goroutine uses it.
type batchPart struct {
	*batch
	ctx  context.Context
	sink *Sink
	link *connection

	ready  queue[int]      // messages that may be published now
	flight queue[inFlight] // published and not yet confirmed, in order
	ids    map[string]bool // the ids of the messages in flight

	session *session
	channel *channel
	release func() bool // cancels the callback that cuts the connection when the context ends

	alone      int             // number of messages that must still be published one at a time
	unresolved map[int]bool    // messages that may have arrived and will be published again
	idle       int             // number of channels that closed without a message in flight
	heard      bool            // a message was confirmed
	trouble    *sinks.Outcome  // if not nil, nothing more is published, and the remaining messages get this outcome
	blocked    <-chan struct{} // closed when the session gets blocked
	grace      *time.Timer     // started when the session got blocked
}

type inFlight struct {
	message int
	destination
	confirmation *amqp.DeferredConfirmation
}

func newPart(ctx context.Context, s *Sink, l *connection, b *batch) *batchPart {
	alone := 0
	if l.silent.Load() {
		alone = 1
	}
	return &batchPart{alone: alone, batch: b, ctx: ctx, sink: s, link: l, ids: make(map[string]bool, s.options.Window)}
}

// run alternates between publishing and waiting: it fills the window, then waits
// for the confirmation of the oldest message.
func (p *batchPart) run() {
	for p.flight.len() > 0 || p.ready.len() > 0 && p.trouble == nil && p.attach() {
		p.fill()
		p.await()
	}
	p.detach()
	p.leave()
	if p.heard {
		p.link.silent.Store(false)
	}
}

// attach gets a channel. Until detach is called, the end of the context resets the
// connection, because only a reset interrupts a write or the wait for an answer.
func (p *batchPart) attach() bool {
	if p.channel != nil {
		return true
	}
	if p.ctx.Err() != nil {
		return p.stop(sinks.Cancelled())
	}
	n, err := p.link.ready(p.ctx)
	if err == nil {
		p.session, p.blocked, p.release = n, n.getsBlocked(), context.AfterFunc(p.ctx, n.wire.cut)
		p.channel, err = n.take()
	}
	if err == nil {
		return true
	}
	p.detach()
	if p.ctx.Err() != nil {
		return p.stop(sinks.Cancelled())
	}
	return p.stopFor(err)
}

// fill publishes ready messages until the window is full, and flushes them in one
// write.
func (p *batchPart) fill() {
	if p.session != nil {
		wire := p.session.wire
		wire.hold()
		defer wire.release()
	}
	for p.trouble == nil && p.channel != nil && p.ready.len() > 0 && p.hasRoom() {
		if p.ctx.Err() != nil {
			p.stop(sinks.Cancelled())
			return
		}
		if err := p.session.blockedNow(); err != nil {
			p.stopFor(err)
			return
		}
		p.publish(p.ready.pop())
	}
}

// hasRoom reports whether the next message may be published: the window has room, and
// no message with the same id is in flight, because returned messages are recognised by id.
func (p *batchPart) hasRoom() bool {
	most := p.sink.options.Window
	if p.alone > 0 {
		most = 1
	}
	return p.flight.len() < most && !p.ids[p.messages[p.ready.first()].ID]
}

func (p *batchPart) publish(i int) {
	l, err := p.sink.prepare(p.messages[i])
	if err != nil {
		p.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
		return
	}
	if most := p.session.connection.Config.FrameSize; most > 0 && l.header > most {
		p.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the headers exceed the broker's maximum frame size of %d bytes", most)))
		return
	}
	to := destination{l.exchange, l.routingKey}
	if !p.sink.full.mayPublish(to) {
		p.isFull(i, to)
		return
	}
	confirmation, err := p.channel.send(l, !p.sink.options.Unroutable)
	switch {
	case err == nil:
		p.ids[p.messages[i].ID] = true
		p.flight.push(inFlight{i, to, confirmation})
	case errors.Is(err, amqp.ErrClosed):
		p.ready.putBack([]int{i}) // the message was not sent completely, so the broker does not have it
		p.lost()
	default:
		p.settle(i, unknown(p.sink.sanitize(err.Error())))
		p.lost()
	}
}

// await waits for the confirmation of the oldest message in flight. It also handles
// the following messages that are already confirmed, because the broker often
// confirms several messages together.
func (p *batchPart) await() {
	for first := true; p.flight.len() > 0 && (first || isKnown(p.flight.first())); first = false {
		oldest := p.flight.first()
		switch {
		case !p.confirmed(oldest):
			p.giveUp()
		case !oldest.confirmation.Acked() && p.channel.IsClosed():
			p.lost()
		default:
			p.flight.pop()
			p.judge(oldest)
		}
	}
}

// blockedGrace is how long to wait for confirmations after the broker has blocked the
// connection. The broker still confirms the messages that it had read before the block.
const blockedGrace = time.Second

// confirmed waits for the confirmation of a message or the end of the channel, and
// returns true. On a blocked connection it returns false after blockedGrace.
func (p *batchPart) confirmed(f inFlight) bool {
	if isKnown(f) {
		return true
	}
	select {
	case <-f.confirmation.Done():
		return true
	case <-p.blocked:
	}
	p.stopFor(p.session.blockedBefore())
	if p.grace == nil { // nothing more is published, so one timer serves all messages in flight
		p.grace = time.NewTimer(blockedGrace)
	}
	select {
	case <-f.confirmation.Done():
		return true
	case <-p.grace.C:
		return false
	}
}

func isKnown(f inFlight) bool {
	select {
	case <-f.confirmation.Done():
		return true
	default:
		return false
	}
}

// judge settles a message that was confirmed, nacked or returned.
func (p *batchPart) judge(f inFlight) {
	delete(p.ids, p.messages[f.message].ID)
	switch r, returned := p.channel.takeReturn(p.messages[f.message].ID); {
	case !f.confirmation.Acked():
		p.sink.full.nacked(f.destination, p.began)
		p.isFull(f.message, f.destination)
		return
	case returned:
		p.settle(f.message, sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, p.sink.sanitize(fmt.Sprintf(
			"no queue receives it: the broker returned it from the exchange %q for the routing key %q: %d %s", f.exchange, f.routingKey, r.ReplyCode, r.ReplyText))))
	default:
		p.settle(f.message, sinks.Ok(""))
	}
	p.sink.full.confirmed(f.destination)
}

// isFull settles a message that was nacked, or that was held back because the broker
// nacks messages for its destination. Later, [Sink.apart] decides the final outcome.
func (p *batchPart) isFull(i int, to destination) {
	p.full[i] = &to
	p.settle(i, sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, fullDetail))
}

// giveUp settles the messages in flight on a blocked connection: their outcome is unknown.
// It keeps the connection open, so that the broker reads these messages before their
// repetitions. The sink stays unavailable until the broker unblocks the connection.
func (p *batchPart) giveUp() {
	why := p.sink.unavailable(p.session.blockedBefore())
	for p.flight.len() > 0 {
		if f := p.flight.pop(); f.confirmation.Acked() {
			p.judge(f)
		} else {
			p.settle(f.message, sinks.Fail(sinks.Retry, sinks.ReasonTimeout, why.Detail))
		}
	}
	p.session.abandon(p.channel)
	p.channel = nil
	p.stop(sinks.Fail(sinks.Unavailable, why.Reason, why.Detail))
}

// lost handles a closed channel. Confirmations that arrived before the channel closed
// are valid. The outcome of all other messages in flight is unknown, because the broker
// drops outstanding confirmations when a channel closes.
func (p *batchPart) lost() {
	why, text := p.channel.end(), p.sink.sanitize("the connection to the broker is lost: "+p.channel.why().Error())
	suspects := p.unconfirmed()
	p.detach()
	switch {
	case isException(why) && len(suspects) == 0 && p.idle < 3:
		p.idle++ // try again with a new channel
	case isException(why) && len(suspects) == 1: // this message is the cause
		o := p.sink.refused(why)
		if o.Result == sinks.Unavailable {
			p.stop(o)
		}
		p.settle(suspects[0].message, o)
	case isException(why) && len(suspects) > 1:
		p.isolate(suspects)
	default:
		p.broken(suspects, text)
	}
}

// unconfirmed removes all messages in flight, and returns those that were not
// confirmed.
func (p *batchPart) unconfirmed() []inFlight {
	var rest []inFlight
	for p.flight.len() > 0 {
		if f := p.flight.pop(); f.confirmation.Acked() {
			p.judge(f)
		} else {
			delete(p.ids, p.messages[f.message].ID)
			rest = append(rest, f)
		}
	}
	return rest
}

// isolate finds the message that made the broker close the channel. It puts the suspects,
// that is, the messages that were in flight, back into the queue, to be published again
// one at a time. Bisecting would need fewer steps, but the messages before the refused one
// would arrive again in each step. Published one at a time, they arrive only twice.
func (p *batchPart) isolate(suspects []inFlight) {
	if p.unresolved == nil {
		p.unresolved = map[int]bool{}
	}
	again := make([]int, len(suspects))
	for n, f := range suspects {
		again[n], p.unresolved[f.message] = f.message, true
	}
	p.ready.putBack(again)
	p.alone = len(again)
}

// broken settles the messages that were in flight on a lost connection.
func (p *batchPart) broken(suspects []inFlight, detail string) {
	o := unknown(detail)
	p.stop(sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, detail))
	if p.ctx.Err() != nil {
		o = sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no confirmation in time: "+detail)
		p.trouble = new(sinks.Cancelled())
		p.link.silent.Store(len(suspects) > 0 && !p.heard)
	}
	for _, f := range suspects {
		p.settle(f.message, o)
	}
}

// settle records a message's outcome. If it was delivered, the next message of its
// key becomes ready; otherwise the later messages of its key are blocked.
func (p *batchPart) settle(i int, o sinks.Outcome) {
	p.outcomes[i] = o
	if p.alone > 0 {
		p.alone--
	}
	switch {
	case o.Result != sinks.Delivered:
		p.behind(i, sinks.Blocked())
	default:
		p.heard = true
		if p.next[i] != 0 {
			p.ready.push(p.next[i])
		}
	}
}

// behind sets the outcome of all later messages of the same key, which must not be
// sent.
func (b *batch) behind(i int, o sinks.Outcome) {
	for i = b.next[i]; i != 0; i = b.next[i] {
		b.outcomes[i] = o
	}
}

// stop ends the publishing of this part. Messages in flight are still settled.
func (p *batchPart) stop(why sinks.Outcome) bool {
	if p.trouble == nil {
		p.trouble = &why
	}
	return false
}

// stopFor ends the publishing of this part because the broker is unavailable.
func (p *batchPart) stopFor(err error) bool {
	u := p.sink.unavailable(err)
	return p.stop(sinks.Fail(sinks.Unavailable, u.Reason, u.Detail))
}

// detach gives up the channel. If the channel is still open, it goes back to the session.
func (p *batchPart) detach() {
	if p.release != nil {
		p.release()
		defer p.session.leave()
	}
	if p.channel != nil && !p.channel.IsClosed() {
		p.session.giveBack(p.channel)
	}
	if p.grace != nil {
		p.grace.Stop()
	}
	p.channel, p.release = nil, nil
}

// leave settles the messages that were not published. If a message was published once
// and should have been published again, its outcome is unknown.
func (p *batchPart) leave() {
	if p.trouble == nil {
		return
	}
	for p.ready.len() > 0 {
		i := p.ready.pop()
		if p.unresolved[i] {
			p.settle(i, unknown("published without a confirmation, and not published again: "+p.trouble.Detail))
			continue
		}
		p.outcomes[i] = *p.trouble
		p.behind(i, *p.trouble)
	}
}

func unknown(detail string) sinks.Outcome {
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, detail)
}

// queue is an unbounded FIFO queue.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) { q.items = append(q.items, item) }

func (q *queue[T]) first() T { return q.items[q.head] }

func (q *queue[T]) pop() T {
	item := q.items[q.head]
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}

// putBack inserts items at the front.
func (q *queue[T]) putBack(items []T) {
	q.items, q.head = append(append([]T(nil), items...), q.items[q.head:]...), 0
}
