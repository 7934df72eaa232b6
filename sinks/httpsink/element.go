package httpsink

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
)

// headerCount says how many messages an array has.
const headerCount = "Rowrelay-Count"

// element is a message in an array, where it is no CloudEvent. The names are those
// of the JSON lines; the payload is JSON itself, or else base64, or left out where
// it is NULL.
type element struct {
	MessageID     string            `json:"message_id"`
	Topic         string            `json:"topic"`
	Key           string            `json:"key,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Attempt       int               `json:"attempt"`
	CreatedAt     *time.Time        `json:"created_at,omitempty"`
}

// piece is a message that is ready for an array.
type piece struct {
	call        // the url, and the header that is made of the message; the body is the element
	with string // pieces with the same text can be in one array
}

// pieceOf makes a message ready. One that was tried before is alone in its array:
// the fault may be its own, or that of the array it was in.
func (s *Sink) pieceOf(i int, m *sinks.Message) (p piece, err error) {
	if p.url, err = s.target.of(m); err != nil {
		return p, fmt.Errorf("the url %w", err)
	}
	p.header = http.Header{}
	if err := s.fill(p.header, m); err != nil {
		return p, err
	}
	p.with = fmt.Sprintf("%s\n%q", p.url, p.header) // fmt sorts maps
	if m.Attempt > 1 {
		p.with = strconv.Itoa(i)
	}
	p.body, err = s.element(*m)
	return p, err
}

func (s *Sink) element(m sinks.Message) ([]byte, error) {
	if s.events != nil {
		event, err := s.events.Message(m)
		return event.Payload, err
	}
	if err := sinks.CheckUTF8(m); err != nil {
		return nil, err
	}
	e := element{MessageID: m.ID, Topic: m.Topic, Key: m.Key, Headers: m.Headers, Attempt: m.Attempt}
	if !m.CreatedAt.IsZero() {
		at := m.CreatedAt.UTC()
		e.CreatedAt = &at
	}
	if utf8.Valid(m.Payload) && json.Valid(m.Payload) {
		e.Payload = m.Payload
	} else if m.Payload != nil {
		text := base64.StdEncoding.EncodeToString(m.Payload)
		e.PayloadBase64 = &text
	}
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), err
}

// arrayOf makes the request of several pieces.
func (s *Sink) arrayOf(pieces []piece, ids []string) call {
	bodies := make([][]byte, len(pieces))
	for i, p := range pieces {
		bodies[i] = p.body
	}
	c := call{url: pieces[0].url, header: s.static.Clone()}
	c.body = append(append([]byte("["), bytes.Join(bodies, []byte(","))...), ']')
	c.header.Set("Content-Type", s.arrayType())
	for name, values := range pieces[0].header {
		c.header[name] = values
	}
	id := arrayID(ids)
	c.of = id
	c.header.Set(headerID, percentEncode(id))
	c.header.Set(headerCount, strconv.Itoa(len(pieces)))
	s.sign(c.header, id, c.body)
	hideIdempotency(c.header)
	return c
}

// arrayID is the message's for an array of one, and the same for the same
// messages in the same order.
func arrayID(ids []string) string {
	if len(ids) == 1 {
		return ids[0]
	}
	hash := sha256.New()
	for _, id := range ids {
		fmt.Fprintf(hash, "%d:%s", len(id), id)
	}
	return "array-" + hex.EncodeToString(hash.Sum(nil)[:16])
}

func (s *Sink) arrayType() string {
	switch {
	case s.contentType != "":
		return s.contentType
	case s.events != nil:
		return "application/cloudevents-batch+json"
	}
	return "application/json"
}

func (o Options) checkArray() error {
	if o.Array && o.CloudEvents.Mode == cloudevents.Binary {
		return errors.New("an array can't have CloudEvents in binary mode: use structured")
	}
	return nil
}
