package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// sink publishes messages to one stream.
type sink struct {
	servers  string
	connect  []nats.Option // the login and the certificates
	timeout  time.Duration // time limit for connecting to one server
	name     string        // the stream's name
	subject  subject
	create   create
	fan      *sinks.Fan
	redactor settings.Redactor

	link *link // set by Open; nil if the sink isn't open

	subjects subjects
}

// Open connects unless the current connection works, and makes sure that the stream exists.
func (s *sink) Open(ctx context.Context) error {
	if s.link != nil && s.link.up() && s.find(ctx, false) == nil {
		return nil
	}
	return s.open(ctx, false)
}

// Check does what Open does, but creates nothing. It accepts that the stream is missing if Open would create it.
func (s *sink) Check(ctx context.Context) error { return s.open(ctx, true) }

func (s *sink) open(ctx context.Context, checkOnly bool) error {
	s.drop()
	link, err := dial(ctx, s.servers, s.timeout, s.connect)
	if err != nil {
		return opening(s.redactor.Present(err.Error(), 500), err)
	}
	s.link = link
	if err := s.find(ctx, checkOnly); err != nil {
		s.drop()
		return opening(s.redactor.Present(err.Error(), 500), err)
	}
	return nil
}

// find reports whether the stream exists. If the stream is missing and the settings name its subjects, find creates it.
// With checkOnly, find creates nothing and accepts that the stream is missing.
func (s *sink) find(ctx context.Context, checkOnly bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.link.await(ctx, apiSubjects, func(ctx context.Context) error {
		stream, err := s.link.js.Stream(ctx, s.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) && len(s.create.subjects) > 0 {
			if checkOnly {
				return nil
			}
			stream, err = s.link.js.CreateStream(ctx, jetstream.StreamConfig{
				Name: s.name, Subjects: s.create.subjects, Replicas: s.create.replicas, Duplicates: s.create.window,
				AllowDirect: true, Storage: jetstream.FileStorage,
			})
		}
		if errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("find the stream %s: JetStream doesn't answer; it must be enabled on the servers and for the account: %w", s.name, err)
		}
		if err != nil {
			return fmt.Errorf("find the stream %s: %w", s.name, err)
		}
		s.link.stream = stream
		return nil
	})
}

// Close ends the connection.
func (s *sink) Close(context.Context) error {
	s.drop()
	return nil
}

func (s *sink) drop() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}

// Destination describes the stream.
func (s *sink) Destination() string { return fmt.Sprintf("nats %s, stream %s", s.servers, s.name) }

// Order returns sinks.OrderPrefix: a message is sent only after the stream has stored the previous message of its key.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send publishes messages of different keys concurrently. If the context ends before the server has answered,
// Send closes the connection, so that the client sends nothing later.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	link := s.link
	if link == nil || !link.up() {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "not connected to NATS"))
	}
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	stop := context.AfterFunc(ctx, link.cut)
	defer stop()
	return s.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		return s.publish(ctx, link, &m)
	})
}

func (s *sink) publish(ctx context.Context, link *link, m *sinks.Message) sinks.Outcome {
	if !link.up() {
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "the connection to NATS is lost")
	}
	message, err := s.encode(m)
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	stored, err := s.store(ctx, link, m, message)
	if err == nil {
		return sinks.Ok(s.name + " " + strconv.FormatUint(stored, 10))
	}
	o := s.failed(ctx, link, m, message, err)
	o.Detail = s.redactor.Present(o.Detail, 500)
	return o
}
