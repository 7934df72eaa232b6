package plugins

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// toWire makes what is sent of a message. What the protocol says is text has to
// be UTF-8.
func toWire(m sinks.Message) (*pluginv1.Message, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return nil, errors.New("the id or the topic is not UTF-8, the plug-in protocol can't carry it")
	}
	w := &pluginv1.Message{
		Id: m.ID, Topic: m.Topic, Key: []byte(m.Key), Payload: m.Payload,
		Sequence: m.Sequence, Attempt: int32(min(m.Attempt, math.MaxInt32)), Priority: int32(m.Priority),
		CreatedAtUs: micros(m.CreatedAt), AvailableAtUs: micros(m.AvailableAt),
	}
	if len(m.Headers) == 0 {
		return w, nil
	}
	w.Headers = make([]*pluginv1.Header, 0, len(m.Headers))
	for name, value := range m.Headers {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of the header %q is not UTF-8, the plug-in protocol can't carry it", name)
		}
		w.Headers = append(w.Headers, &pluginv1.Header{Name: name, Value: []byte(value)})
	}
	slices.SortFunc(w.Headers, func(a, b *pluginv1.Header) int { return strings.Compare(a.Name, b.Name) })
	return w, nil
}

// sizeOf is at least what a message takes in a request, encoded, and not much
// more.
func sizeOf(m sinks.Message) int {
	const numbers, text = 64, 12 // the fields of fixed size; the name and length of one of any
	size := numbers + 4*text + len(m.ID) + len(m.Topic) + len(m.Key) + len(m.Payload)
	for name, value := range m.Headers {
		size += 3*text + len(name) + len(value)
	}
	return size
}

func fromWire(w *pluginv1.Message) sinks.Message {
	m := sinks.Message{
		Message: outbox.Message{
			ID: w.GetId(), Topic: w.GetTopic(), Key: string(w.GetKey()), Payload: w.Payload,
			AvailableAt: fromMicros(w.GetAvailableAtUs()), Priority: int16(w.GetPriority()),
		},
		Sequence: w.GetSequence(), Attempt: int(w.GetAttempt()), CreatedAt: fromMicros(w.GetCreatedAtUs()),
	}
	if len(w.GetHeaders()) > 0 {
		m.Headers = make(map[string]string, len(w.GetHeaders()))
	}
	for _, header := range w.GetHeaders() {
		m.Headers[header.GetName()] = string(header.GetValue())
	}
	return m
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// millis are rounded up, so that what is short doesn't become no limit.
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// fromMillis takes no more than a day from the other side.
func fromMillis(ms int64) time.Duration {
	const day = 24 * time.Hour
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, day.Milliseconds())) * time.Millisecond
}
