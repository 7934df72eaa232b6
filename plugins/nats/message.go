package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The headers that the plug-in adds. The values of the topic and the key are percent-encoded,
// because a NATS header can't contain arbitrary text.
const (
	topicHeader = "rowrelay-topic"
	keyHeader   = "rowrelay-key"
	nullHeader  = "rowrelay-payload" // "null" if the payload is NULL

	sequenceHeader = "rowrelay-sequence" // the position in the outbox table; set only with ExpectedLastSubjSeqHeader
)

// subject computes the subjects of messages.
type subject struct {
	template settings.Template
	headers  bool // the template uses headers

	// own is set if all messages of a subject have the same key or the same id, because {key} or {id} is a
	// token of its own. An earlier copy of a message is then among the last messages of the subject.
	own bool
}

func parseSubject(text string) (subject, error) {
	template, err := settings.ParseTemplate(text)
	if err != nil {
		return subject{}, err
	}
	s := subject{template: template, headers: strings.Contains(text, "{header:")}
	for part := range strings.SplitSeq(text, ".") {
		s.own = s.own || part == "{key}" || part == "{id}"
	}
	for _, fixed := range template.Texts() {
		if strings.ContainsFunc(fixed, notInSubject) {
			return subject{}, errors.New("is not a NATS subject: it contains a space or a wildcard")
		}
	}
	return s, nil
}

func notInSubject(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }

// of returns the subject of a message. The topic may have several tokens. Any other value is part of one token.
func (s subject) of(m outbox.Message) (string, error) {
	topic := m.Topic
	m.Key, m.ID = token(m.Key), token(m.ID)
	if s.headers {
		values := make(map[string]string, len(m.Headers))
		for name, value := range m.Headers {
			values[name] = token(value)
		}
		m.Headers = values
	}
	text, err := s.template.Fill(&m, settings.NotEmpty)
	if err != nil {
		return "", settings.PrefixError("subject", err)
	}
	if strings.ContainsFunc(text, notInSubject) || strings.Contains("."+text+".", "..") {
		return "", fmt.Errorf("the topic %q makes the NATS subject invalid", topic)
	}
	if strings.HasPrefix(text, "$") && !strings.HasPrefix(s.template.Texts()[0], "$") {
		return "", fmt.Errorf("the topic %q makes the subject begin with $, which is reserved for the server's own subjects", topic) // such as $JS.API.STREAM.DELETE
	}
	return text, nil
}

// token percent-encodes all characters that have a meaning in subjects.
func token(value string) string { return strings.ReplaceAll(url.PathEscape(value), ".", "%2E") }

// encode converts a message to a NATS message for the stream.
func (s *sink) encode(m *sinks.Message) (*nats.Msg, error) {
	subject, err := s.subject.of(m.Message)
	if err != nil {
		return nil, err
	}
	message := &nats.Msg{Subject: subject, Data: m.Payload, Header: make(nats.Header, len(m.Headers)+6)}
	for name, value := range m.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
		message.Header[name] = []string{value}
	}
	message.Header[jetstream.MsgIDHeader] = []string{messageID(m)}
	message.Header[jetstream.ExpectedStreamHeader] = []string{s.name}
	message.Header[topicHeader] = []string{url.PathEscape(m.Topic)}
	if m.Key != "" {
		message.Header[keyHeader] = []string{url.PathEscape(m.Key)}
	}
	if m.Payload == nil {
		message.Header[nullHeader] = []string{"null"}
	}
	return message, nil
}

// messageID returns the id by which the stream recognises the message. A replay's copy of a message has the same id as
// the message, but the stream must store it. So the replay's name is part of the copy's id in the stream.
func messageID(m *sinks.Message) string {
	id := url.PathEscape(m.ID)
	if replay, is := m.Headers[sinks.ReplayedHeader]; is {
		id += "/" + url.PathEscape(replay)
	}
	return id
}

// checkHeader refuses a header that would arrive changed, and a header that only the sink may set.
func checkHeader(name, value string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r > '~' }) {
		return errors.New("a header has a name that NATS can't carry")
	}
	if strings.HasPrefix(strings.ToLower(name), "nats-") || sinks.ReservedHeader(name) {
		return fmt.Errorf("the header %s is reserved", name)
	}
	if strings.ContainsAny(value, "\r\n") || strings.TrimSpace(value) != value {
		return fmt.Errorf("the header %s has a value that NATS can't carry", name)
	}
	return nil
}
