// Package cloudevents makes CloudEvents 1.0 of messages, in binary or
// structured mode, for the sinks whose protocol has a binding.
//
// A message's own headers named ce-NAME (or ce_NAME) become attributes, in any
// case. What they don't say comes from the message and from the [Options].
package cloudevents

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// Mode is where an event's attributes stand.
type Mode string

// The modes. In binary mode the payload stays as it is and the attributes are
// headers; in structured mode both are one JSON object, which is the payload.
const (
	Off        Mode = "off"
	Binary     Mode = "binary"
	Structured Mode = "structured"
)

// Options say how events are made.
type Options struct {
	Mode Mode // defaults to Off

	// Source is the source, a URI reference, of events without a ce-source
	// header. Required.
	Source string

	// Type is the type of events without a ce-type header. Defaults to the
	// message's topic.
	Type string
}

// Encoder makes events of messages. Its methods may be called concurrently,
// also on a nil Encoder, which leaves messages as they are.
type Encoder struct {
	options Options
	binding Binding
}

// New returns an encoder for a protocol, or nil if the mode is Off.
func New(binding Binding, options Options) (*Encoder, error) {
	switch options.Mode {
	case Off, "":
		if options.Source != "" || options.Type != "" {
			return nil, errors.New("make CloudEvents: a source or a type is set and the mode is off")
		}
		return nil, nil
	case Binary, Structured:
	default:
		return nil, fmt.Errorf("make CloudEvents: the mode %q must be off, binary or structured", options.Mode)
	}
	if _, err := url.Parse(options.Source); err != nil || options.Source == "" {
		return nil, errors.New("make CloudEvents: the source must be a URI reference, like https://shop.example/orders or /orders")
	}
	return &Encoder{options, binding}, nil
}

// Message returns the message as the protocol is to carry it: with the
// attributes among its headers, or with the whole event as its payload. The
// error says what is wrong with the message's headers; no later attempt will
// go better.
func (e *Encoder) Message(m sinks.Message) (sinks.Message, error) {
	if e == nil {
		return m, nil
	}
	event, err := e.event(m)
	if err != nil {
		return m, fmt.Errorf("make a CloudEvent: %w", err)
	}
	m.Headers = event.headers
	if e.options.Mode == Structured {
		m.Payload = event.json()
		m.Headers[e.binding.contentType] = structuredType
		return m, nil
	}
	e.binding.put(m.Headers, event)
	return m, nil
}

// event is what all modes and protocols have in common.
type event struct {
	attributes  map[string]string // without datacontenttype
	contentType string
	data        []byte            // nil: none
	headers     map[string]string // the message's that are no attributes
}

func (e *Encoder) event(m sinks.Message) (event, error) {
	made := event{data: m.Payload, headers: map[string]string{}, attributes: map[string]string{
		"specversion": "1.0", "id": m.ID, "source": e.options.Source, "type": m.Topic,
	}}
	if e.options.Type != "" {
		made.attributes["type"] = e.options.Type
	}
	if m.Key != "" {
		made.attributes["subject"] = m.Key
	}
	if !m.CreatedAt.IsZero() {
		made.attributes["time"] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	for name, value := range m.Headers {
		if err := made.take(name, value); err != nil {
			return event{}, err
		}
	}
	if made.contentType == "" {
		made.contentType = sinks.ContentType(m.Payload)
	}
	return made, nil
}

// take sorts one header of the message.
func (e *event) take(name, value string) error {
	lower := strings.ToLower(name)
	attribute, found := strings.CutPrefix(lower, "ce-")
	if !found {
		attribute, found = strings.CutPrefix(lower, "ce_")
	}
	switch {
	case lower == "content-type":
		e.contentType = value
	case !found:
		e.headers[name] = value
	default:
		if err := checkAttribute(attribute, value); err != nil {
			return fmt.Errorf("the header %q %w", name, err)
		}
		e.attributes[attribute] = value
	}
	return nil
}
