package httpsink

import (
	"context"
	"net"
	"net/http"
	"net/url"
)

// Through lets the requests of a sink go through this dialer, with a resolver of
// its own, for instance.
func (o Options) Through(dialer net.Dialer) Options {
	o.dialer = dialer
	return o
}

// Over has the sink connect in another way.
func (s *Sink) Over(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Sink {
	s.transport.DialContext = counted(dial)
	return s
}

// Via has the sink use a proxy, as the environment can.
func (s *Sink) Via(proxy *url.URL) *Sink {
	s.transport.Proxy = http.ProxyURL(proxy)
	return s
}
