package sinktest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// oneOutcomeEach checks that batches of several sizes are delivered, with an
// outcome for each message. If the destination can be read, it also checks that each
// message arrives once.
func oneOutcomeEach(s *subject) {
	ctx := s.opened()
	var sent []sinks.Message
	for _, size := range []int{1, 2, 3, 100} {
		batch := s.batch(make([]string, size)...)
		s.deliver(ctx, batch)
		sent = append(sent, batch...)
	}
	if s.Received != nil {
		s.arrivedOnce(s.arrivals(ids(sent)), sent)
	}
}

// arrivesAsWritten checks that messages that any destination can carry arrive
// unchanged.
func arrivesAsWritten(s *subject) {
	ctx := s.opened()
	sent := s.ordinary()
	s.deliver(ctx, sent)
	s.arrivedOnce(s.arrivals(ids(sent)), sent)
}

// ordinary returns messages that every sink must be able to deliver.
func (s *subject) ordinary() []sinks.Message {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	many := map[string]string{"x-empty": ""}
	for i := range 20 {
		many[fmt.Sprint("x-", i)] = strings.Repeat("v", i+1)
	}
	changes := []func(*outbox.Message){
		func(m *outbox.Message) { m.Payload = nil },
		func(m *outbox.Message) { m.Payload = []byte{} },
		func(m *outbox.Message) { m.Payload = binary },
		func(m *outbox.Message) { m.Payload = slices.Repeat([]byte("0123456789abcde\n"), s.LargePayload/16) },
		func(m *outbox.Message) {
			m.Payload = []byte("lines\r\nand \"quotes\", <tags> & \u2028 ünïcode 🛒 \x00")
		},
		func(m *outbox.Message) { m.Key = "a key with spaces" },
		func(m *outbox.Message) { m.Key = "100%/?&=#\"ключ🔑" },
		func(m *outbox.Message) { m.Key = strings.Repeat("k", 255) },
		func(m *outbox.Message) { m.Headers = nil },
		func(m *outbox.Message) { m.Headers = many },
		func(m *outbox.Message) { m.Headers = map[string]string{"x-quoted": `"a", b; c=d\ %41`} },
	}
	return s.changed(changes)
}

// oddMessages sends messages that some destinations can't carry. It checks that each
// of them either is rejected with a detail or arrives unchanged.
func oddMessages(s *subject) {
	ctx := s.opened()
	var accepted []sinks.Message
	odd := s.odd()
	for _, m := range odd {
		o := s.send(ctx, []sinks.Message{m})[0]
		switch {
		case o.Result == sinks.Delivered:
			accepted = append(accepted, m)
		case o.Result != sinks.Reject || o.Detail == "":
			s.t.Errorf("a message (key %q, headers %q) was neither delivered nor rejected with a detail: %s", m.Key, m.Headers, show(o))
		}
	}
	s.settled(ctx)
	got := s.arrivals(ids(accepted))
	for _, m := range odd {
		if !slices.ContainsFunc(accepted, func(other sinks.Message) bool { return other.ID == m.ID }) {
			s.absent(got, m)
		}
	}
	s.arrivedOnce(got, accepted)
}

func (s *subject) odd() []sinks.Message {
	headers := func(name, value string) func(*outbox.Message) {
		return func(m *outbox.Message) { m.Headers = map[string]string{name: value} }
	}
	return s.changed([]func(*outbox.Message){
		headers("x-utf8", "ünïcode ключ 🔑"),
		headers("x-spaces", "  around "),
		headers("x-lines", "one\r\ntwo: three"),
		headers("x-null", "a\x00b"),
		headers("x-long", strings.Repeat("v", 8<<10)),
		headers("x-not-utf8", "\xff\xfe"),
		headers("a name", "v"),
		headers("ключ", "v"),
		headers("", "v"),
		func(m *outbox.Message) { m.Headers = map[string]string{"x-case": "1", "X-Case": "2"} },
		func(m *outbox.Message) { m.Key = "not UTF-8 \xff" },
		func(m *outbox.Message) { m.Key = "lines\r\nin a key\x00" },
		func(m *outbox.Message) { m.ID += " with spaces and ü" },
	})
}

// changed returns one message for each change, with this change applied.
func (s *subject) changed(changes []func(*outbox.Message)) []sinks.Message {
	batch := s.batch(make([]string, len(changes))...)
	for i, change := range changes {
		change(&batch[i].Message)
	}
	return batch
}

// arrivedOnce checks that each of these messages has arrived once and unchanged.
func (s *subject) arrivedOnce(got []outbox.Message, want []sinks.Message) {
	s.t.Helper()
	count, last := map[string]int{}, map[string]outbox.Message{}
	for _, m := range got {
		count[m.ID]++
		last[m.ID] = m
	}
	for _, m := range want {
		if count[m.ID] != 1 {
			s.t.Errorf("message %s arrived %d times", m.ID, count[m.ID])
		} else if d := difference(last[m.ID], m.Message, s.NullIsEmpty); d != "" {
			s.t.Errorf("message %s arrived changed: %s", m.ID, d)
		}
	}
}

// absent checks that a message has not arrived.
func (s *subject) absent(got []outbox.Message, m sinks.Message) {
	s.t.Helper()
	if slices.ContainsFunc(got, func(other outbox.Message) bool { return other.ID == m.ID }) {
		s.t.Errorf("message %s arrived although its outcome says that it was not delivered", m.ID)
	}
}
