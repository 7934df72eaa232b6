package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/sinks"
)

// The headers that a message has besides its own. They are percent-encoded,
// since a header of NATS can't hold every text.
const (
	keyHeader  = "Rowrelay-Key"
	nullHeader = "Rowrelay-Payload" // "null" where the payload is NULL
)

// encode makes what is published of a message.
func encode(m sinks.Message, prefix string) (*nats.Msg, error) {
	subject := prefix + m.Topic
	if m.Topic == "" || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains(subject, "..") {
		return nil, fmt.Errorf("the topic %q can't be a subject of NATS", m.Topic)
	}
	message := &nats.Msg{Subject: subject, Data: m.Payload, Header: nats.Header{}}
	for name, value := range m.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
		message.Header[name] = []string{value}
	}
	message.Header[jetstream.MsgIDHeader] = []string{url.PathEscape(m.ID)}
	if m.Key != "" {
		message.Header[keyHeader] = []string{url.PathEscape(m.Key)}
	}
	if m.Payload == nil {
		message.Header[nullHeader] = []string{"null"}
	}
	return message, nil
}

// checkHeader refuses what would arrive as something else.
func checkHeader(name, value string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r > '~' }) || strings.HasPrefix(name, "Nats-") ||
		name == keyHeader || name == nullHeader {
		return errors.New("the name of a header can't be one of NATS")
	}
	if strings.ContainsAny(value, "\r\n") || strings.TrimSpace(value) != value {
		return fmt.Errorf("the value of the header %s can't be one of NATS", name)
	}
	return nil
}
