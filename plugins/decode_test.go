package plugins

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// varied are messages with headers as the one before has them, with others, with
// more, fewer and none.
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

func encoded(t testing.TB, batch []sinks.Message) []byte {
	t.Helper()
	request := &pluginv1.SendRequest{}
	for _, m := range batch {
		request.Messages = append(request.Messages, generated(m))
	}
	text, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Whatever a sink does with its messages, no other has changed, nor a text that it
// has kept.
func TestMessagesShareNothingThatCanBeChanged(t *testing.T) {
	t.Parallel()
	want := varied()
	decoded, err := decodeRequest(encoded(t, want))
	if err != nil || !reflect.DeepEqual(decoded.batch, want) {
		t.Fatalf("decoded is\n%+v\nwant\n%+v (%v)", decoded.batch, want, err)
	}
	kept := slices.Clone(decoded.batch)
	for i := range decoded.batch {
		spoil(&decoded.batch[i])
		for j := range want {
			got, want := kept[j], want[j]
			if j <= i { // its own payload and headers are what it made of them
				got.Payload, got.Headers = want.Payload, want.Headers
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("with message %d, message %d has become\n%+v\nwant\n%+v", i, j, got, want)
			}
		}
	}
}

// spoil does what a sink may do with a message, and some more.
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

// A text that somebody keeps keeps little else.
func TestTextsAreOfSmallBlocks(t *testing.T) {
	t.Parallel()
	texts := texts{most: textBlock}
	for _, size := range []int{0, 1, 300, textBlock / 4, textBlock, 5 * textBlock, 7} {
		text := strings.Repeat("x", size)
		for range 10 {
			if got := texts.of([]byte(text)); got != text {
				t.Errorf("of %d bytes: %q", size, got)
			}
			if room := texts.block.Cap(); room > 2*textBlock {
				t.Errorf("after %d bytes, a block has %d", size, room)
			}
		}
	}
}

// read is what generated code makes of a message.
func read(w *pluginv1.Message) sinks.Message {
	m := sinks.Message{
		Message: outbox.Message{
			ID: w.GetId(), Topic: w.GetTopic(), Key: string(w.GetKey()), Payload: w.Payload,
			AvailableAt: fromMicros(w.GetAvailableAtUs()), Priority: int16(w.GetPriority()),
		},
		Sequence: w.GetSequence(), Attempt: int(w.GetAttempt()), CreatedAt: fromMicros(w.GetCreatedAtUs()),
	}
	for _, h := range w.GetHeaders() {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[h.GetName()] = string(h.GetValue())
	}
	return m
}
