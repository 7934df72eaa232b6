package plugins

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// varied returns messages with varied headers: the same as the previous message's, or
// different ones, or more, fewer or none.
func varied() (batch []sinks.Message) {
	for i := range 60 {
		headers := map[string]string{}
		for place := range i / 6 % 4 {
			headers[fmt.Sprint("name-", place)] = fmt.Sprint("value-", place, i%5/4)
		}
		if len(headers) == 0 {
			headers = nil
		}
		batch = append(batch, sinks.Message{Message: outbox.Message{
			ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", i), Topic: fmt.Sprint("topic-", i/20), Key: strings.Repeat("k", i%3*200),
			Payload: []byte(fmt.Sprint("payload-", i)), Headers: headers,
		}})
	}
	return batch
}

// If the sink changes a message, no other message changes, and no text that the
// sink has kept.
func TestMessagesShareNoMemory(t *testing.T) {
	t.Parallel()
	want := varied()
	batch := crossed(t, want)
	kept := slices.Clone(batch)
	for i := range batch {
		spoil(&batch[i])
		for j := range want {
			got, want := kept[j], want[j]
			if j <= i { // the sink has changed these messages itself
				got.Payload, got.Headers = want.Payload, want.Headers
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("with message %d, message %d has become\n%+v\nwant\n%+v", i, j, got, want)
			}
		}
	}
}

// spoil changes everything in a message that can be changed.
func spoil(m *sinks.Message) {
	for i := range m.Payload {
		m.Payload[i] = '#'
	}
	m.Payload = append(m.Payload, strings.Repeat("#", 5000)...)
	for name := range m.Headers {
		m.Headers[name] = "#"
	}
	delete(m.Headers, "name-0")
	if m.Headers != nil {
		m.Headers["#"] = "#"
	}
	m.ID, m.Topic, m.Key = "#", "#", "#"
}
