package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
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
	timeout  time.Duration // of connecting to one server
	name     string        // the stream's
	subject  subject
	create   create
	fan      *sinks.Fan
	redactor settings.Redactor

	link *link // set by Open; nil if the sink isn't open

	mu   sync.Mutex
	last map[string]uint64 // the sequence of the last message of some subjects, as far as known
}

// Open connects if the connection is missing, lost or doesn't answer, and makes sure that the stream exists.
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

// find reports whether the stream exists. If the settings say that a missing stream is created, find creates it, or with
// checkOnly accepts that it is missing.
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

// Send publishes messages of different keys concurrently. If the context ends while the server's answers are missing,
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
	stored, err := s.store(ctx, link, message)
	if err == nil {
		return sinks.Ok(s.name + " " + strconv.FormatUint(stored, 10))
	}
	o := s.failed(ctx, link, m, message, err)
	o.Detail = s.redactor.Present(o.Detail, 500)
	return o
}

// store publishes a message and returns its sequence in the stream. If all messages of the subject have one key or one
// id, the stream stores the message only if the sequence of the subject's last message is the expected one. If it isn't,
// store looks at the last message: it is either this message, which an earlier attempt has stored, or
// another one, whose sequence store expects from now on.
func (s *sink) store(ctx context.Context, link *link, message *nats.Msg) (uint64, error) {
	if !s.subject.own {
		return link.publish(ctx, message)
	}
	for attempt := 1; ; attempt++ {
		message.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(s.lastOf(message.Subject), 10)}
		stored, err := link.publish(ctx, message)
		if err == nil {
			s.setLast(message.Subject, stored)
			return stored, nil
		}
		if !isWrongLast(err) || attempt == attempts {
			return 0, err
		}
		last, err := link.lastOn(ctx, message.Subject)
		if err != nil {
			return 0, fmt.Errorf("read the last message of the subject: %w", err)
		}
		s.setLast(message.Subject, last.Sequence)
		if last.Header.Get(jetstream.MsgIDHeader) == message.Header[jetstream.MsgIDHeader][0] {
			return last.Sequence, nil
		}
	}
}

// attempts limits how often a message is published if other programs publish to its subject meanwhile.
const attempts = 4

func isWrongLast(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) &&
		(refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// known limits the number of subjects whose last sequence is remembered. A forgotten one costs two more requests.
const known = 1 << 16

func (s *sink) lastOf(subject string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[subject]
}

func (s *sink) setLast(subject string, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) >= known {
		clear(s.last)
	}
	s.last[subject] = sequence
}
