package plugins

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// messageToWire fails where what the protocol says is text isn't UTF-8: one such
// message would keep the whole request from being encoded.
func messageToWire(m *sinks.Message) (*pluginv1.Message, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return nil, errors.New("the id or the topic is not UTF-8, the plug-in protocol can't carry it")
	}
	w := &pluginv1.Message{
		Id: m.ID, Topic: m.Topic, Key: []byte(m.Key), Payload: m.Payload, Sequence: m.Sequence, Attempt: int32(m.Attempt),
		CreatedAtUs: micros(m.CreatedAt), AvailableAtUs: micros(m.AvailableAt), Priority: int32(m.Priority),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of the header %q is not UTF-8, the plug-in protocol can't carry it", name)
		}
		w.Headers = append(w.Headers, &pluginv1.Header{Name: name, Value: []byte(m.Headers[name])})
	}
	return w, nil
}

// messageFromWire leaves nil what isn't there.
func messageFromWire(w *pluginv1.Message) sinks.Message {
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
	for _, h := range w.GetHeaders() {
		m.Headers[h.GetName()] = string(h.GetValue())
	}
	return m
}

// sizeInRequest is how many bytes a message takes as a part of an encoded request.
func sizeInRequest(w *pluginv1.Message) int { return 1 + protowire.SizeBytes(proto.Size(w)) }
