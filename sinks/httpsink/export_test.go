package httpsink

import (
	"context"
	"net"
)

// Through lets the requests of a sink go through this dialer, with a resolver of
// its own, for instance.
func (o Options) Through(dialer net.Dialer) Options {
	o.dialer = dialer
	return o
}

// Over has the sink connect in another way.
func (s *Sink) Over(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Sink {
	s.transport.DialContext = dial
	return s
}
