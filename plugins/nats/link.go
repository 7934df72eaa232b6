package main

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// link is a connection to a server. The client doesn't reconnect on its own, so that the relay notices an outage.
type link struct {
	connection *nats.Conn
	js         jetstream.JetStream
	stream     jetstream.Stream // set before the first Send

	mu      sync.Mutex
	raw     net.Conn                                     // the network connection that the client opened last
	waiting map[string]map[*context.CancelCauseFunc]bool // requests without an answer, by subject
	refused error                                        // the server's error if the client may not subscribe to answers; otherwise nil
}

// heartbeat is the interval of the client's pings. After two missing answers the client closes the
// connection.
const heartbeat = 10 * time.Second

func dial(ctx context.Context, servers string, timeout time.Duration, login []nats.Option) (*link, error) {
	l := &link{waiting: map[string]map[*context.CancelCauseFunc]bool{}}
	stop := context.AfterFunc(ctx, l.cut)
	defer stop()
	connection, err := nats.Connect(servers, append([]nats.Option{
		nats.Name("rowrelay"), nats.NoReconnect(), nats.Timeout(timeout), nats.FlusherTimeout(timeout),
		nats.PingInterval(heartbeat), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
		nats.SetCustomDialer(dialer{ctx, timeout, l}), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.report(err) }),
	}, login...)...)
	if err != nil {
		return nil, err
	}
	l.connection = connection
	l.js, err = jetstream.New(connection)
	return l, err
}

// dialer opens the network connections of a link.
type dialer struct {
	ctx     context.Context
	timeout time.Duration
	link    *link
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: d.timeout}).DialContext(d.ctx, network, address)
	if err == nil {
		d.link.mu.Lock()
		d.link.raw = raw
		d.link.mu.Unlock()
	}
	return raw, err
}

func (l *link) up() bool { return l.connection.IsConnected() }

// cut closes the connection without sending what the client has buffered. All requests without an answer fail.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != nil {
		_ = l.raw.Close()
	}
}

func (l *link) close() {
	l.cut()
	l.connection.Close()
}

// publish sends a message and returns the sequence under which the stream has stored it. If the stream already has a
// message with this id within its duplicate window, publish returns that message's sequence.
func (l *link) publish(ctx context.Context, message *nats.Msg) (sequence uint64, err error) {
	err = l.await(ctx, message.Subject, func(ctx context.Context) error {
		stored, err := l.js.PublishMsg(ctx, message, jetstream.WithRetryAttempts(0))
		if err == nil {
			sequence = stored.Sequence
		}
		return err
	})
	return sequence, err
}

// lastOn returns the last message of a subject. Its sequence is 0 if the subject has no message.
func (l *link) lastOn(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return l.read(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return l.stream.GetLastMsgForSubject(ctx, subject)
	})
}

// message returns the message with this sequence. The result's sequence is 0 if the stream has no such message.
func (l *link) message(ctx context.Context, sequence uint64) (*jetstream.RawStreamMsg, error) {
	return l.read(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return l.stream.GetMsg(ctx, sequence)
	})
}

func (l *link) read(ctx context.Context, get func(context.Context) (*jetstream.RawStreamMsg, error)) (found *jetstream.RawStreamMsg, err error) {
	err = l.await(ctx, apiSubjects, func(ctx context.Context) (err error) {
		found, err = get(ctx)
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &jetstream.RawStreamMsg{Header: nats.Header{}}, nil
	}
	return found, err
}

// apiSubjects stands for all subjects of requests to JetStream itself.
const apiSubjects = "$JS."

// await calls request. If the server reports that the client may not publish to the subject, the request's context
// ends, and await returns the server's error, because the server doesn't answer the request.
func (l *link) await(ctx context.Context, subject string, request func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	if l.waiting[subject] == nil {
		l.waiting[subject] = map[*context.CancelCauseFunc]bool{}
	}
	l.waiting[subject][&cancel] = true
	l.mu.Unlock()
	err := request(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.waiting[subject], &cancel); len(l.waiting[subject]) == 0 {
		delete(l.waiting, subject)
	}
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	if err != nil && l.refused != nil {
		return l.refused
	}
	return err
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// report handles an error that the server sends asynchronously.
func (l *link) report(err error) {
	found := violation.FindStringSubmatch(err.Error())
	if found == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	subject := found[2]
	switch {
	case strings.EqualFold(found[1], "subscription"): // the subscription to the answers of all requests
		l.refused = err
		if l.raw != nil {
			_ = l.raw.Close()
		}
		return
	case strings.HasPrefix(subject, apiSubjects):
		subject = apiSubjects
	}
	for cancel := range l.waiting[subject] {
		(*cancel)(err)
	}
}
