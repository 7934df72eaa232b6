package sinks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
)

// line is the JSON form of a message. It has the members that `rowrelay enqueue`
// reads, and three more members with the relay's data: attempt, sequence and
// created_at.
type line struct {
	MessageID     string            `json:"message_id,omitempty"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key,omitempty"`
	Payload       *string           `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	AvailableAt   time.Time         `json:"available_at,omitzero"`
	ExpiresAt     time.Time         `json:"expires_at,omitzero"`
	Priority      int16             `json:"priority,omitempty"`
	Attempt       int               `json:"attempt,omitempty"`
	Sequence      int64             `json:"sequence,omitempty"`
	CreatedAt     time.Time         `json:"created_at,omitzero"`
}

// binaryLine is a line whose payload isn't text.
type binaryLine struct {
	line
	Payload *string `json:"payload,omitempty"` // always nil; hides line.Payload, because "payload":null would mean a NULL payload
}

// WriteLine appends a message to the buffer as one line of JSON, with a newline. The
// member "payload" is a string if the payload is UTF-8, and null if the payload is NULL.
// Any other payload is in "payload_base64". WriteLine returns an error and writes nothing
// if the id, the topic, the key or a header is not UTF-8, which JSON requires.
func WriteLine(buffer *bytes.Buffer, m Message) error {
	if err := CheckUTF8(m); err != nil {
		return err
	}
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	l := line{
		MessageID: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers,
		AvailableAt: m.AvailableAt.UTC(), ExpiresAt: m.ExpiresAt.UTC(), Priority: m.Priority,
		Attempt: m.Attempt, Sequence: m.Sequence, CreatedAt: m.CreatedAt.UTC(),
	}
	if !utf8.Valid(m.Payload) {
		l.PayloadBase64 = m.Payload
		return encoder.Encode(binaryLine{line: l})
	}
	if m.Payload != nil {
		text := string(m.Payload)
		l.Payload = &text
	}
	return encoder.Encode(l)
}

// WriteLines appends the lines of a batch to the buffer. It returns the outcomes that
// the messages have when the caller has written the whole buffer: [Reject] if a
// message can't be written as a line, [Unsent] if an earlier message of its key was
// rejected, and otherwise [Delivered]. The second result holds the buffer's length
// after each message.
func WriteLines(buffer *bytes.Buffer, batch []Message) (outcomes []Outcome, ends []int) {
	outcomes, ends = All(len(batch), Ok("")), make([]int, len(batch))
	rejected := map[string]bool{}
	for i, m := range batch {
		if m.Key != "" && rejected[m.Key] {
			outcomes[i] = Blocked()
		} else if err := WriteLine(buffer, m); err != nil {
			outcomes[i] = Fail(Reject, ReasonInvalid, err.Error())
			rejected[m.Key] = true
		}
		ends[i] = buffer.Len()
	}
	return outcomes, ends
}

// ReadLine parses a line that [WriteLine] wrote. It ignores unknown members of the
// object.
func ReadLine(text []byte) (Message, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Message{}, errors.New("read a message: the line is not a JSON object with a message's members")
	}
	payload := l.PayloadBase64
	if l.Payload != nil {
		payload = []byte(*l.Payload)
	}
	return Message{
		Message: outbox.Message{
			ID: l.MessageID, Topic: l.Topic, Key: l.Key, Payload: payload,
			Headers: l.Headers, AvailableAt: l.AvailableAt, ExpiresAt: l.ExpiresAt, Priority: l.Priority,
		},
		Attempt: l.Attempt, Sequence: l.Sequence, CreatedAt: l.CreatedAt,
	}, nil
}

// CheckUTF8 returns an error if the message's id, topic, key or a header is not
// UTF-8, which JSON requires.
func CheckUTF8(m Message) error {
	for _, part := range []struct{ name, text string }{{"id", m.ID}, {"topic", m.Topic}, {"key", m.Key}} {
		if !utf8.ValidString(part.text) {
			return fmt.Errorf("the %s is not UTF-8, so JSON can't carry it", part.name)
		}
	}
	for name, value := range m.Headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("the header %q is not UTF-8, so JSON can't carry it", name)
		}
	}
	return nil
}

// ContentType guesses the media type of a payload: application/json for a JSON
// object or array, "" for a NULL payload, and application/octet-stream otherwise.
func ContentType(payload []byte) string {
	trimmed := strings.TrimLeft(string(payload[:min(len(payload), 64)]), " \t\r\n")
	looksLikeJSON := strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")
	switch {
	case payload == nil:
		return ""
	case looksLikeJSON && json.Valid(payload):
		return "application/json"
	}
	return "application/octet-stream"
}
