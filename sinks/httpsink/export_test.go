package httpsink

import (
	"context"
	"net"
	"net/http"
	"net/url"
)

// Through sets the dialer of the sink's connections, for example one with a test
// resolver.
func (o Options) Through(dialer net.Dialer) Options {
	o.dialer = dialer
	return o
}

// Over replaces the function that makes the sink's connections.
func (s *Sink) Over(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Sink {
	s.secrets.Load().transport.DialContext = counted(dial)
	return s
}

// Via sets the proxy that the sink uses, as the environment could.
func (s *Sink) Via(proxy *url.URL) *Sink {
	s.secrets.Load().transport.Proxy = http.ProxyURL(proxy)
	return s
}
