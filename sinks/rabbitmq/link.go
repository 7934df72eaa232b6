package rabbitmq

import (
	"context"
	"sync/atomic"
)

// connection is one of the sink's connections. If it is lost, Open or the next Send
// connects again.
type connection struct {
	sink *Sink
	turn chan struct{} // semaphore: only one goroutine connects at a time
	next int           // the host to try first; guarded by turn

	// silent means that the last Send ran out of time without a confirmation, for example
	// because a quorum queue has lost the majority of its nodes. The next Send then
	// publishes a single message first, so that at most this message's outcome is unknown.
	silent atomic.Bool

	current atomic.Pointer[session]
}

// newConnection returns a connection that tries the host with the given number first.
func newConnection(s *Sink, number int) *connection {
	return &connection{sink: s, turn: make(chan struct{}, 1), next: number}
}

// ready returns a checked session and registers the caller as a user of the session
// (see session.enter).
func (l *connection) ready(ctx context.Context) (*session, error) {
	for {
		n, err := l.current.Load(), error(nil)
		if n != nil && !n.dead() && !n.isOld() && n.checked.Load() {
			err = n.blockedNow()
		} else {
			n, err = l.connect(ctx)
		}
		if err != nil || n.enter() {
			return n, err
		}
	}
}

// open connects if necessary, and checks the session in any case.
func (l *connection) open(ctx context.Context) error {
	if n := l.current.Load(); n != nil {
		n.checked.Store(false)
	}
	_, err := l.connect(ctx)
	return err
}

// connect returns a checked session. It tries each host once.
func (l *connection) connect(ctx context.Context) (*session, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n, err := l.checked(ctx)
	if err != nil && n != nil && n.dead() && ctx.Err() == nil {
		n, err = l.checked(ctx) // the connection was lost while it was idle
	}
	return n, err
}

// checked checks the current session, or a new one, and returns it. If a session with the current secrets can't be made,
// checked keeps the session with the previous secrets.
func (l *connection) checked(ctx context.Context) (n *session, err error) {
	n = l.current.Load()
	if n != nil && n.dead() {
		n.close(ctx)
		n = nil
	}
	if before := n; before == nil || before.isOld() {
		made, at, err := l.sink.dial(ctx, l.next)
		if l.next = at + 1; err != nil && before == nil {
			return nil, err
		}
		if err == nil {
			n = made
			l.current.Store(n)
			if before != nil {
				before.retire(ctx)
			}
		}
	}
	if n.checked.Load() {
		return n, n.blockedNow() // another Send has checked the session meanwhile
	}
	return n, n.check(ctx)
}

func (l *connection) close(ctx context.Context) {
	if n := l.current.Load(); n != nil {
		n.close(ctx)
	}
}
