package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The headers that the sink adds to a message.
const (
	headerTopic   = "rowrelay-topic"
	headerKey     = "rowrelay-key"
	headerAttempt = "rowrelay-attempt"
	headerPayload = "rowrelay-payload"
)

// publishing is a message in the form in which it is published.
type publishing struct {
	exchange, routingKey string
	publishing           amqp.Publishing
	header               int // upper bound on the size of the frame that carries the properties, in bytes
}

// prepare converts a message to a publishing. It returns an error for headers that would
// make the broker close the channel. It also returns an error for every problem that the
// client library would detect only while writing, because the connection would then have
// to be closed.
func (s *Sink) prepare(m sinks.Message) (publishing, error) {
	event, err := s.events.Message(m)
	if err != nil {
		return publishing{}, err
	}
	l := publishing{publishing: s.publishing(event)}
	if l.exchange, err = short(s.exchange, &m); err != nil {
		return l, fmt.Errorf("the exchange %w", err)
	}
	if l.routingKey, err = short(s.routingKey, &m); err != nil {
		return l, fmt.Errorf("the routing key %w", err)
	}
	if err = checkID(m.ID); err != nil {
		return l, fmt.Errorf("the id %w", err)
	}
	err = l.putHeaders(event)
	l.header = frameBytes(l.publishing)
	return l, err
}

// short returns a template's text for a message, or an error if it is too long for
// AMQP.
func short(t settings.Template, m *sinks.Message) (string, error) {
	text, err := t.Fill(&m.Message, nil)
	if err != nil {
		return "", err
	}
	return text, checkShort(text)
}

// checkID checks a message's id. It must not be empty, because returned messages are
// matched by id.
func checkID(id string) error {
	if id == "" {
		return errors.New("is empty")
	}
	return checkShort(id)
}

func (s *Sink) publishing(m sinks.Message) amqp.Publishing {
	p := amqp.Publishing{MessageId: m.ID, Timestamp: m.CreatedAt, Body: m.Payload, DeliveryMode: amqp.Persistent}
	if s.options.Transient {
		p.DeliveryMode = amqp.Transient
	}
	if s.options.Expiration > 0 {
		p.Expiration = strconv.FormatInt(s.options.Expiration.Milliseconds(), 10)
	}
	if s.options.Priority {
		p.Priority = uint8(min(max(m.Priority, 0), 255))
	}
	if m.Payload != nil {
		p.ContentType = s.options.ContentType
	}
	return p
}

// putHeaders adds the headers of the message and of the sink. The header
// Content-Type becomes a property.
func (l *publishing) putHeaders(m sinks.Message) error {
	table := make(amqp.Table, len(m.Headers)+4)
	for name, value := range m.Headers {
		if err := checkHeader(name); err != nil {
			return fmt.Errorf("the header %q %w", name, err)
		}
		if !strings.EqualFold(name, "content-type") {
			table[name] = value
		} else if err := checkShort(value); err != nil {
			return fmt.Errorf("the header %q %w", name, err)
		} else {
			l.publishing.ContentType = value
		}
	}
	if l.publishing.ContentType == "" {
		l.publishing.ContentType = sinks.ContentType(m.Payload)
	}
	l.publishing.Headers = table
	putOwn(table, m)
	return nil
}

func putOwn(table amqp.Table, m sinks.Message) {
	table[headerTopic] = m.Topic
	table[headerAttempt] = int32(m.Attempt)
	if m.Key != "" {
		table[headerKey] = m.Key
	}
	if m.Payload == nil {
		table[headerPayload] = "null"
	}
}

// lists are the headers that RabbitMQ interprets as lists of routing keys. RabbitMQ closes the
// channel if one of them is a string, and rowrelay sends all headers as strings.
var lists = []string{"CC", "BCC"}

func checkHeader(name string) error {
	switch {
	case name == "":
		return errors.New("has no name")
	case sinks.ReservedHeader(name):
		return errors.New("belongs to the sink and can't be set")
	case slices.Contains(lists, name):
		return errors.New("must be a list of routing keys in RabbitMQ, but a message's headers are texts: use another name")
	case len(name) > mostShort:
		return fmt.Errorf("has a name of %d bytes, but AMQP allows at most %d", len(name), mostShort)
	}
	return nil
}

// frameBytes returns an upper bound on the size of the frame that carries the given
// properties. This frame can't be split, and a broker closes the connection if it is too
// large.
func frameBytes(p amqp.Publishing) int {
	const fixed = 128 // the frame itself, flags, numbers, lengths
	size := fixed + len(p.MessageId) + len(p.ContentType)
	for name, value := range p.Headers {
		size += len(name) + 6
		if text, ok := value.(string); ok {
			size += len(text)
		}
	}
	return size
}
