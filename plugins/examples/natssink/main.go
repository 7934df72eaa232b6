// Natssink is a plug-in that publishes each message to NATS JetStream, which
// recognises a duplicate by the message's id:
//
//	go build -C plugins/examples/natssink -o natssink .
//	rowrelay plugin describe ./natssink
//	rowrelay run --database URL --sink 'plugin:./natssink?config.url=nats://localhost:4222'
//
// The subject is the message's topic. If no stream accepts the subject, the message and its key
// wait until a stream does; other messages continue. If a message arrives twice within the
// stream's duplicate window, it is stored once.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func main() { plugins.ServeKind(kind()) }

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "nats",
		Summary: "Publishes each message to NATS JetStream.",
		Fields: []settings.Field{
			{Name: "url", Type: settings.TypeString, Default: "nats://localhost:4222", Help: "The address of the server, or several, separated by commas."},
			{Name: "subject_prefix", Type: settings.TypeString, Help: "A prefix of the subject, before the topic."},
			{Name: "credentials_file", Type: settings.TypeString, Help: "A file with the credentials to authenticate with."},
			{Name: "token", Type: settings.TypeSecret, Help: "A token to authenticate with."},
		},
		New: func(s settings.Values) (sinks.Sink, error) {
			return &sink{
				url: s.Text("url"), prefix: s.Text("subject_prefix"),
				credentials: s.Text("credentials_file"), token: s.Secret("token").Reveal(),
			}, nil
		},
	}
}

// sink publishes to JetStream.
type sink struct {
	url, prefix, credentials, token string

	connection *nats.Conn // set by Open
	stream     jetstream.JetStream
}

// Open connects if the connection is missing or lost. The client doesn't reconnect on its own,
// so that the relay notices an outage.
func (s *sink) Open(ctx context.Context) error {
	if s.connection != nil && s.connection.IsConnected() {
		return nil
	}
	s.drop()
	options := []nats.Option{nats.NoReconnect(), nats.Name("rowrelay")}
	if s.credentials != "" {
		options = append(options, nats.UserCredentials(s.credentials))
	}
	if s.token != "" {
		options = append(options, nats.Token(s.token))
	}
	connection, err := nats.Connect(s.url, options...)
	if errors.Is(err, nats.ErrAuthorization) {
		return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: err.Error()}
	}
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	s.connection = connection
	s.stream, err = jetstream.New(connection)
	return err
}

func (s *sink) Close(context.Context) error {
	s.drop()
	return nil
}

func (s *sink) drop() {
	if s.connection != nil {
		s.connection.Close()
	}
}

// Order returns sinks.OrderPrefix: a message is sent only after the previous message of its key
// was stored.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send publishes up to 64 messages concurrently, but only one message of each key at a time.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return sinks.NewFan(64).Send(ctx, batch, s.publish)
}

func (s *sink) publish(ctx context.Context, m sinks.Message) sinks.Outcome {
	if s.connection == nil || !s.connection.IsConnected() {
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "not connected to NATS")
	}
	message, err := encode(m, s.prefix)
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	stored, err := s.stream.PublishMsg(ctx, message)
	if err != nil {
		return failed(m, err)
	}
	return sinks.Ok(fmt.Sprintf("%s %d", stored.Stream, stored.Sequence))
}

// failed returns the outcome of a message if publishing it failed with err. The server may
// have stored the message without acknowledging it.
func failed(m sinks.Message, err error) sinks.Outcome {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, err.Error())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		wait := min(max(time.Since(m.CreatedAt)/4, time.Second), time.Minute) // older messages wait longer
		wait -= rand.N(wait / 4)                                              // so that not all messages return at the same moment
		return sinks.Postpone(sinks.ReasonUnroutable, "no stream accepts the subject: "+err.Error(), wait)
	case errors.As(err, &refused):
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, err.Error())
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, err.Error())
}

// Additional headers of a message. Their values are percent-encoded, because a NATS header can't
// hold arbitrary text.
const (
	keyHeader  = "Rowrelay-Key"
	nullHeader = "Rowrelay-Payload" // "null" if the payload is NULL
)

// encode converts a message to a NATS message.
func encode(m sinks.Message, prefix string) (*nats.Msg, error) {
	subject := prefix + m.Topic
	if m.Topic == "" || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains(subject, "..") {
		return nil, fmt.Errorf("the topic %q is not a valid NATS subject", m.Topic)
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

// checkHeader refuses headers that would arrive changed.
func checkHeader(name, value string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r > '~' }) || strings.HasPrefix(name, "Nats-") ||
		name == keyHeader || name == nullHeader {
		return errors.New("a message has a header whose name NATS can't carry")
	}
	if strings.ContainsAny(value, "\r\n") || strings.TrimSpace(value) != value {
		return fmt.Errorf("the header %s has a value that NATS can't carry", name)
	}
	return nil
}
