package rabbitmq

import (
	"context"
	"sync/atomic"
)

// connection is one of the sink's connections, made again whenever it was lost: by
// Open, and by the next Send that needs it.
type connection struct {
	sink *Sink
	turn chan struct{} // held by who connects
	next int           // the host to begin with; who has the turn may use it

	// silent says that a time was over without a single confirmation. Then one
	// message goes ahead of the others: a queue that has lost its majority
	// confirms nothing for as long as that takes, and not all shall pay for it.
	silent atomic.Bool

	current atomic.Pointer[session]
}

// newConnection returns a connection. Each begins with another host.
func newConnection(s *Sink, number int) *connection {
	return &connection{sink: s, turn: make(chan struct{}, 1), next: number}
}

// ready returns a session that was checked.
func (l *connection) ready(ctx context.Context) (*session, error) {
	if n := l.current.Load(); n != nil && !n.dead() && n.checked.Load() {
		return n, n.blockedNow()
	}
	return l.connect(ctx)
}

// open connects if necessary, and checks in any case.
func (l *connection) open(ctx context.Context) error {
	if n := l.current.Load(); n != nil {
		n.checked.Store(false)
	}
	_, err := l.connect(ctx)
	return err
}

// connect returns a session that it has checked. It tries each host once.
func (l *connection) connect(ctx context.Context) (*session, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n, err := l.checked(ctx)
	if err != nil && n != nil && n.dead() && ctx.Err() == nil {
		n, err = l.checked(ctx) // it was lost while nobody used it
	}
	return n, err
}

// checked returns the current session, or a new one, when it was checked.
func (l *connection) checked(ctx context.Context) (n *session, err error) {
	n = l.current.Load()
	if n == nil || n.dead() {
		if n != nil {
			n.close(ctx)
		}
		var at int
		n, at, err = l.sink.dial(ctx, l.next)
		if l.next = at + 1; err != nil {
			return nil, err
		}
		l.current.Store(n)
	}
	if n.checked.Load() {
		return n, n.blockedNow() // by another Send, meanwhile
	}
	return n, n.check(ctx)
}

func (l *connection) close(ctx context.Context) {
	if n := l.current.Load(); n != nil {
		n.close(ctx)
	}
}
