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

// batch is a Send under way.
type batch struct {
	messages []sinks.Message
	outcomes []sinks.Outcome
	full     []*destination // by message: the one that has nacked, and not taken it
	began    time.Time
	next     []int // by message: the next one of its key; 0 if none
}

// Send publishes the batch, each key through its own connection.
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

// split deals the messages out to the connections and returns the parts that have
// some. Of each key only the first one is ready to be published.
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

// batchPart is what a batch sends through one connection. One goroutine works on it.
type batchPart struct {
	*batch
	ctx  context.Context
	sink *Sink
	link *connection

	ready  queue[int]      // messages that may be published now
	flight queue[inFlight] // published, not confirmed, in order
	ids    map[string]bool // of the messages in flight

	session *session
	channel *channel
	release func() bool // ends the watch on the context

	alone      int             // so many of the next messages travel alone
	unresolved map[int]bool    // messages that may have arrived and are published again
	idle       int             // channels that closed without a message in flight
	heard      bool            // something was confirmed
	trouble    *sinks.Outcome  // nothing is begun any more, because of this
	blocked    <-chan struct{} // the session's
	grace      *time.Timer     // runs from when the session got blocked
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

// run publishes and waits for confirmations in turns: as many messages as fit
// into the window, then the oldest one's confirmation.
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

// attach gets a channel. When the context ends the connection is cut: nothing
// else interrupts a write or a wait for an answer.
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

// fill publishes what may be published now, and writes it at once.
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

// hasRoom keeps messages of one id apart too: what is returned is known by it.
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
		p.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the headers take more than the broker's largest frame of %d bytes", most)))
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
		p.ready.putBack([]int{i}) // it didn't go out whole, and so not at all
		p.lost()
	default:
		p.settle(i, unknown(p.sink.sanitize(err.Error())))
		p.lost()
	}
}

// await finds out about the oldest message in flight, and about those behind it
// of which the broker has told meanwhile: it confirms many at once.
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

// blockedGrace is how long messages may stay unconfirmed once the broker has
// blocked the connection: it still confirms what it had read.
const blockedGrace = time.Second

// confirmed waits for a confirmation, or for the end of the channel, which
// looks the same. On a blocked connection it doesn't wait for long.
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
	if p.grace == nil { // nothing is published any more, so one timer does for all that is in flight
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

// judge gives a confirmed message its outcome.
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

// isFull leaves it to apart what the outcome of a message is.
func (p *batchPart) isFull(i int, to destination) {
	p.full[i] = &to
	p.settle(i, sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, fullDetail))
}

// giveUp leaves the messages in flight to a connection that is blocked. It is
// kept: the broker reads them when it can, before what is sent again. The sink
// stays unavailable until then.
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

// lost deals with a channel that is closed. What was confirmed before is so;
// what became of the rest is unknown, since the broker forgets what it has yet to
// confirm.
func (p *batchPart) lost() {
	why, text := p.channel.end(), p.sink.sanitize("the connection to the broker is lost: "+p.channel.why().Error())
	suspects := p.unconfirmed()
	p.detach()
	switch {
	case isException(why) && len(suspects) == 0 && p.idle < 3:
		p.idle++ // the next try has a new channel
	case isException(why) && len(suspects) == 1: // the broker closed its channel over this one
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

// unconfirmed empties the flight, and returns what was not confirmed.
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

// isolate publishes the suspects again, each one alone on its channel, so that
// the one that the broker closes it over is known and its neighbours go on.
// Halving would take fewer steps where the window is large, but those before
// the culprit would arrive once more with each of them; so they do once.
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

// broken settles what was in flight on a connection that is gone.
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

// settle notes a message's outcome, and what that means for its key.
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

// behind gives an outcome to the messages behind this one, which are of its key:
// none of them may be sent.
func (b *batch) behind(i int, o sinks.Outcome) {
	for i = b.next[i]; i != 0; i = b.next[i] {
		b.outcomes[i] = o
	}
}

// stop ends the part, after what is in flight.
func (p *batchPart) stop(why sinks.Outcome) bool {
	if p.trouble == nil {
		p.trouble = &why
	}
	return false
}

// stopFor ends the part because the broker can't be used.
func (p *batchPart) stopFor(err error) bool {
	u := p.sink.unavailable(err)
	return p.stop(sinks.Fail(sinks.Unavailable, u.Reason, u.Detail))
}

// detach gives the channel back, if it owes nothing.
func (p *batchPart) detach() {
	if p.release != nil {
		p.release()
	}
	if p.channel != nil && !p.channel.IsClosed() {
		p.session.giveBack(p.channel)
	}
	if p.grace != nil {
		p.grace.Stop()
	}
	p.channel, p.release = nil, nil
}

// leave says of what was not begun, why. A message that went out before and was
// to be published again may have arrived.
func (p *batchPart) leave() {
	if p.trouble == nil {
		return
	}
	for p.ready.len() > 0 {
		i := p.ready.pop()
		if p.unresolved[i] {
			p.settle(i, unknown("published once, and not again: "+p.trouble.Detail))
			continue
		}
		p.outcomes[i] = *p.trouble
		p.behind(i, *p.trouble)
	}
}

func unknown(detail string) sinks.Outcome {
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, detail)
}

// queue is a queue without bounds.
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

// putBack puts items before the first.
func (q *queue[T]) putBack(items []T) {
	q.items, q.head = append(append([]T(nil), items...), q.items[q.head:]...), 0
}
