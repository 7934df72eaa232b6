package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The fields of an entry.
const (
	idField      = "id"
	topicField   = "topic"
	keyField     = "key"
	payloadField = "payload" // missing if the payload is NULL
	headerField  = "header:" // before a header's name
)

// encode converts a message to an entry of a stream. Fields and values may be any bytes.
func (s *sink) encode(m *sinks.Message) (entry, error) {
	stream, err := s.stream.Fill(&m.Message, settings.NotEmpty)
	if err != nil {
		return entry{}, settings.PrefixError("stream", err)
	}
	e := entry{stream: stream, values: make([]any, 0, 8+2*len(m.Headers))}
	e.values = append(e.values, idField, m.ID, topicField, m.Topic)
	if m.Key != "" {
		e.values = append(e.values, keyField, m.Key)
	}
	if m.Payload != nil {
		e.values = append(e.values, payloadField, m.Payload)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if sinks.ReservedHeader(name) {
			return entry{}, fmt.Errorf("the header %s is reserved", name)
		}
		e.values = append(e.values, headerField+name, m.Headers[name])
	}
	if s.remember > 0 {
		e.marker = marker(stream, m)
	}
	return e, nil
}

// marker returns the key by which the server remembers a message. The key is in the same slot of a cluster as the
// stream. A replay's copy of a message has the same id as the message, but counts as another message.
func marker(stream string, m *sinks.Message) string {
	tag := stream
	if _, after, found := strings.Cut(stream, "{"); found {
		if inner, _, closed := strings.Cut(after, "}"); closed && inner != "" {
			tag = inner
		}
	}
	return "rowrelay:{" + tag + "}:" + stream + ":" + m.ID + "/" + m.Headers[sinks.ReplayedHeader]
}
