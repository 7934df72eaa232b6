package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/sinks"
)

// sink publishes to JetStream.
type sink struct {
	url, prefix, credentials, token string

	connection *nats.Conn // set by Open
	stream     jetstream.JetStream
}

// Open connects, anew where the connection was lost: the client is told not to
// do so by itself, so that an outage is seen as one.
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

// Order: a message is sent when the one of its key before it was stored.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send publishes up to 64 messages at once, one of a key at a time.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return sinks.NewFan(64).Send(ctx, batch, s.publish)
}

func (s *sink) publish(ctx context.Context, m sinks.Message) sinks.Outcome {
	if s.connection == nil || !s.connection.IsConnected() {
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "there is no connection to NATS")
	}
	message, err := encode(m, s.prefix)
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	stored, err := s.stream.PublishMsg(ctx, message)
	if err != nil {
		return s.failed(err)
	}
	return sinks.Ok(fmt.Sprintf("%s %d", stored.Stream, stored.Sequence))
}

// failed is the outcome of a message that the server has not stored, or has not
// said so of.
func (s *sink) failed(err error) sinks.Outcome {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, err.Error())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, "no stream takes the subject: "+err.Error())
	case errors.As(err, &refused):
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, err.Error())
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, err.Error())
}
