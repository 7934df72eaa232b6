package httpsink

import "net"

// Through lets the requests of a sink go through this dialer, with a resolver of
// its own, for instance.
func (o Options) Through(dialer net.Dialer) Options {
	o.dialer = dialer
	return o
}
