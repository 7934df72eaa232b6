package rabbitmq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// TestConnectionBreaksWithAWindowInFlight: the broker has accepted the messages in
// flight, but no confirmation arrives. The outcome of one message of each key is
// unknown, and the later ones are not sent. When they are sent again, all arrive,
// each key in order, none more than twice.
func TestConnectionBreaksWithAWindowInFlight(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := theBroker(t)
			c := b.client(t)
			queue, p := c.queue(kind, nil), newProxy(t, b.hosts[0])
			sink := opened(t, b.options(p.address()))
			batch := many(200, func(i int) sinks.Message { return to(queue, fmt.Sprint("key ", i%50)) })
			reached, release := p.stall()
			go func() {
				<-reached
				box := &mailbox{client: b.client(t), queue: queue} // used only for the depth of the queue
				for d := box.depth(); d < 50; d = box.depth() {
				}
				p.cut()
				release()
			}()
			outcomes := sink.Send(t.Context(), batch)
			expect(t, outcomes, func(i int) string {
				if i < 50 {
					return "retry unknown"
				}
				return "unsent blocked"
			})
			deliverAll(t, sink, batch)
			arrivedInOrder(t, &mailbox{client: c, queue: queue}, batch)
		})
	}
}

// TestSendStopsAfterALostConnection: after a lost connection, the same Send publishes no further
// messages. If it tried to, it would take as long as the outage.
func TestSendStopsAfterALostConnection(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue, p := b.client(t).queue("classic", nil), newProxy(t, b.hosts[0])
	options := b.options(p.address())
	options.Connections, options.Window = 1, 10
	sink := opened(t, options)
	reached, release := p.stall()
	go func() {
		<-reached
		p.cut()
		release()
	}()
	known := 0
	for i, o := range sink.Send(t.Context(), many(100, func(int) sinks.Message { return to(queue, "") })) {
		switch {
		case o.Result == sinks.Retry && o.Reason == sinks.ReasonUnknown && i < 10:
		case o.Result == sinks.Unavailable && o.Reason == sinks.ReasonConnection:
			known++
		default:
			t.Errorf("message %d: %+v", i, o)
		}
	}
	if known < 90 {
		t.Errorf("%d messages are unavailable, want at least 90", known)
	}
}

// depth returns the number of messages in the queue.
func (b *mailbox) depth() int {
	q, err := b.client.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	if err != nil {
		b.client.t.Errorf("get the depth of the queue: %v", err)
		return 1 << 30
	}
	return q.Messages
}

// deliverAll opens the sink and sends until all messages are delivered.
func deliverAll(t testing.TB, sink *rabbitmq.Sink, batch []sinks.Message) {
	t.Helper()
	for sends := 0; len(batch) > 0; sends++ {
		if sends == 10 {
			t.Fatalf("%d messages are still not delivered", len(batch))
		}
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		outcomes, left := sink.Send(t.Context(), batch), []sinks.Message{}
		for i, o := range outcomes {
			if o.Result != sinks.Delivered {
				left = append(left, batch[i])
			}
		}
		batch = left
	}
}

// arrivedInOrder checks that the first copies of the messages of each key arrived in
// order, and that each message arrived once or twice.
func arrivedInOrder(t testing.TB, box *mailbox, sent []sinks.Message) {
	t.Helper()
	at, seen := map[string]int{}, map[string]int{}
	last := map[string]int{}
	for i, m := range sent {
		at[m.ID] = i
	}
	for _, m := range box.received() {
		if seen[m.ID]++; seen[m.ID] > 1 {
			continue
		}
		if n := at[m.ID] + 1; n < last[m.Key] {
			t.Errorf("of %q, message %d arrived after %d", m.Key, n, last[m.Key])
		} else {
			last[m.Key] = n
		}
	}
	for i, m := range sent {
		if seen[m.ID] < 1 || seen[m.ID] > 2 {
			t.Errorf("message %d arrived %d times", i, seen[m.ID])
		}
	}
}

// soon fails the test if f takes more than a minute, because then only a time-out or a heartbeat has ended it. The options of
// these tests set both to five minutes.
func soon(t testing.TB, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > time.Minute {
		t.Errorf("%s took %v", what, took)
	}
}

// TestBlockedConnection: the broker is short of memory and blocks the connection. Only the
// messages in flight are charged, and no call hangs.
func TestBlockedConnection(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue, p := c.queue("classic", nil), newProxy(t, b.hosts[0])
	options := b.patient(p.address())
	options.Connections = 1
	sink := opened(t, options)
	p.block()
	batch := many(1000, func(i int) sinks.Message { return to(queue, fmt.Sprint(i%300)) })
	var outcomes []sinks.Outcome
	soon(t, "Send", func() { outcomes = sink.Send(t.Context(), batch) })
	charged, throttled := 0, 0
	for i, o := range outcomes {
		switch {
		case o.Result == sinks.Retry && o.Reason == sinks.ReasonTimeout && i < 300:
			charged++
		case o.Result == sinks.Unavailable && o.Reason == sinks.ReasonThrottled:
			throttled++
		case o.Result != sinks.Unsent || o.Reason != sinks.ReasonBlocked:
			t.Errorf("message %d: %+v", i, o)
		}
	}
	if charged == 0 || charged > rabbitmq.DefaultWindow || throttled == 0 {
		t.Errorf("%d messages are charged, %d are throttled", charged, throttled)
	}
	for range 2 {
		soon(t, "Open", func() {
			unavailable(t, sink.Open(t.Context()), sinks.ReasonThrottled, "the broker has blocked the connection: low memory")
		})
		soon(t, "Send", func() { expect(t, sink.Send(t.Context(), batch[:3]), always("unavailable throttled")) })
	}
	p.release()
	recovers(t, sink, to(queue, "k"))
	left := []sinks.Message{}
	for i, o := range outcomes {
		if o.Result != sinks.Delivered {
			left = append(left, batch[i])
		}
	}
	deliverAll(t, sink, left)
	box := &mailbox{client: c, queue: queue}
	box.got = slices.DeleteFunc(box.received(), func(m outbox.Message) bool { return m.Key == "k" })
	arrivedInOrder(t, box, batch)
}

// recovers waits until a message is delivered.
func recovers(t testing.TB, sink *rabbitmq.Sink, m sinks.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if sink.Open(ctx) == nil && sink.Send(ctx, []sinks.Message{m})[0].Result == sinks.Delivered {
			return
		}
	}
	t.Error("the sink has not recovered")
}

// TestBlockedFromTheStart: a broker that is short of memory accepts connections. Open
// notices it before a message is sent.
func TestBlockedFromTheStart(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue, p := b.client(t).queue("classic", nil), newProxy(t, b.hosts[0])
	p.block()
	sink := newSink(t, b.patient(p.address()))
	unavailable(t, sink.Open(t.Context()), sinks.ReasonThrottled, "low memory")
	expect(t, sink.Send(t.Context(), []sinks.Message{to(queue, "a"), to(queue, "b")}), always("unavailable throttled"))
	p.release()
	recovers(t, sink, to(queue, "a"))
	p.block()
	soon(t, "Close", func() {
		if err := sink.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestStuckSocket: the broker reads only the start of a message and never answers.
// When the context ends, Send returns, and Close returns as well.
func TestStuckSocket(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	for name, size := range map[string]int{"in a write": 32 << 20, "for a confirmation": 10} {
		p := newProxy(t, b.hosts[0])
		options := b.patient(p.address())
		options.Connections = 1
		sink := newSink(t, options)
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		batch := []sinks.Message{to(queue, "a"), to(queue, "a"), to(queue, "b")}
		batch[0].Payload = make([]byte, size)
		ctx, cancel := context.WithCancel(t.Context())
		reached := p.stopReading()
		go func() {
			select {
			case <-reached:
				time.AfterFunc(200*time.Millisecond, cancel) // by then the write or the wait is normally stuck
			case <-t.Context().Done():
				cancel()
			}
		}()
		var outcomes []sinks.Outcome
		soon(t, "Send "+name, func() { outcomes = sink.Send(ctx, batch) })
		switch {
		case size == 10:
			expect(t, outcomes, each("retry timeout", "unsent blocked", "retry timeout"))
		case outcomes[0].Result == sinks.Unsent: // interrupted between two frames: the message can't have arrived
			expect(t, outcomes, always("unsent cancelled"))
		default:
			expect(t, outcomes, each("retry unknown", "unsent blocked", "unsent cancelled"))
		}
		soon(t, "Close", func() { _ = sink.Close(context.Background()) })
		p.release()
	}
}

func TestCloseDoesNotWaitForAStuckConnection(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	p := newProxy(t, b.hosts[0])
	for _, limit := range []time.Duration{time.Millisecond, time.Minute} {
		sink := newSink(t, b.patient(p.address()))
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.stopReading()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		soon(t, "Close", func() { _ = sink.Close(ctx) })
		cancel()
		p.release()
	}
}

// TestUnreachableHosts: the first host is unreachable, and later the second one.
func TestUnreachableHosts(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	first, second := newProxy(t, b.hosts[0]), newProxy(t, b.hosts[0])
	first.setDown(true)
	sink := opened(t, b.options(first.address(), second.address()))
	expect(t, sink.Send(t.Context(), []sinks.Message{to(queue, "")}), always("delivered"))
	first.setDown(false)
	second.setDown(true)
	deliverAll(t, sink, []sinks.Message{to(queue, ""), to(queue, "")})
	if first.connections() == 0 {
		t.Error("the sink did not connect to the first host")
	}
	first.setDown(true)
	unavailable(t, sink.Open(t.Context()), sinks.ReasonConnection, first.address(), second.address())
}

// TestReconnectsToTheNextHost: after a lost connection, the sink connects to the next host,
// even if the previous one still works.
func TestReconnectsToTheNextHost(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	hosts := []*proxy{newProxy(t, b.hosts[0]), newProxy(t, b.hosts[0])}
	options := b.options(hosts[0].address(), hosts[1].address())
	options.Connections = 1
	sink := opened(t, options)
	for lost := range 4 {
		want := [2]int{(lost + 2) / 2, (lost + 1) / 2}
		if got := [2]int{hosts[0].connections(), hosts[1].connections()}; got != want {
			t.Errorf("after %d losses, the hosts have seen %d connections, want %d", lost, got, want)
		}
		hosts[0].cut()
		hosts[1].cut()
		deliverAll(t, sink, []sinks.Message{to(queue, "")})
	}
}

// TestSilentHostGetsItsShareOfTheTime: a host that doesn't answer uses only its share of
// the time, so that the sink still connects to the next host.
func TestSilentHostGetsItsShareOfTheTime(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	silent, good := newProxy(t, b.hosts[0]), newProxy(t, b.hosts[0])
	silent.stall()
	sink := newSink(t, b.options(silent.address(), good.address()))
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := sink.Open(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, sink.Send(t.Context(), []sinks.Message{to(queue, "")}), always("delivered"))
}

// TestLostIdleConnectionsAreReplaced: the next Sends replace idle connections that
// were lost.
func TestLostIdleConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue, p := b.client(t).queue("classic", nil), newProxy(t, b.hosts[0])
	sink := opened(t, b.options(p.address()))
	for range 3 {
		p.cut()
		outcomes := sink.Send(t.Context(), many(10, func(i int) sinks.Message { return to(queue, "") }))
		for i, o := range outcomes {
			// Some messages may have been sent on a connection whose loss was not noticed yet.
			lost := o.Result == sinks.Retry && o.Reason == sinks.ReasonUnknown || o.Result == sinks.Unavailable && o.Reason == sinks.ReasonConnection
			if o.Result != sinks.Delivered && !lost {
				t.Errorf("message %d: %+v", i, o)
			}
		}
		deliverAll(t, sink, []sinks.Message{to(queue, "")})
	}
}
