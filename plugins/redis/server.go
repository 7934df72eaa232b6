package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// server describes how to connect to a server, a cluster or the master that sentinels report.
type server struct {
	addresses          []string
	cluster            bool
	master             string
	database           int
	username, password string
	sentinelPassword   string
	tls                *tls.Config // nil: without TLS
	timeout            time.Duration
}

// link has the connections to a server. The client doesn't retry commands, because only the relay knows the order of
// messages.
type link struct {
	single  *redis.Client        // nil for a cluster
	cluster *redis.ClusterClient // nil for any other server

	mu   sync.Mutex
	open map[*connection]bool
}

// unlimited turns off the client's own time limits, retries and redirects. The deadlines of contexts limit reading and
// writing.
const unlimited = -1

func dial(s server) *link {
	l, quiet := &link{open: map[*connection]bool{}}, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		return l.connect(ctx, s, network, address)
	}
	switch {
	case s.cluster:
		l.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: s.addresses, Username: s.username, Password: s.password, Dialer: connect, DialTimeout: s.timeout, DialerRetries: 1,
			MaxRetries: unlimited, MaxRedirects: unlimited, ReadTimeout: unlimited, WriteTimeout: unlimited, ContextTimeoutEnabled: true, ClientName: "rowrelay", MaintNotificationsConfig: quiet,
		})
	case s.master != "":
		l.single = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: s.master, SentinelAddrs: s.addresses, SentinelPassword: s.sentinelPassword, DB: s.database, Username: s.username, Password: s.password,
			Dialer: connect, DialTimeout: s.timeout, DialerRetries: 1,
			MaxRetries: unlimited, ReadTimeout: unlimited, WriteTimeout: unlimited, ContextTimeoutEnabled: true, ClientName: "rowrelay",
		})
	default:
		l.single = redis.NewClient(&redis.Options{
			Addr: s.addresses[0], DB: s.database, Username: s.username, Password: s.password, Dialer: connect, DialTimeout: s.timeout, DialerRetries: 1,
			MaxRetries: unlimited, ReadTimeout: unlimited, WriteTimeout: unlimited, ContextTimeoutEnabled: true, ClientName: "rowrelay", MaintNotificationsConfig: quiet,
		})
	}
	return l
}

// unreached is the error of a connection that could not be opened, so that nothing was sent.
type unreached struct{ error }

func (e unreached) Unwrap() error { return e.error }

// connect opens a connection, and records it so that cut can close it.
func (l *link) connect(ctx context.Context, s server, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, unreached{err}
	}
	c := &connection{Conn: raw, raw: raw, link: l}
	if s.tls != nil {
		if c.Conn, err = settings.Handshake(ctx, raw, s.tls, address); err != nil {
			_ = raw.Close()
			return nil, unreached{err}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	return c, nil
}

// connection is a network connection of a link. Close removes it from the link.
type connection struct {
	net.Conn
	raw  net.Conn // without TLS
	link *link
}

func (c *connection) Close() error {
	c.link.mu.Lock()
	delete(c.link.open, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// cut closes all connections. Commands without an answer fail, and nothing that the client has buffered is sent.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.raw.Close()
	}
}

func (l *link) close() {
	if l.cluster != nil {
		_ = l.cluster.Close()
	} else {
		_ = l.single.Close()
	}
}

// ping checks that the server, or any node of a cluster, answers.
func (l *link) ping(ctx context.Context) error {
	if l.cluster == nil {
		return l.single.Ping(ctx).Err()
	}
	l.cluster.ReloadState(ctx)
	return l.cluster.Ping(ctx).Err()
}

// node returns the client of the node that has the stream.
func (l *link) node(ctx context.Context, stream string) (*redis.Client, error) {
	if l.cluster == nil {
		return l.single, nil
	}
	return l.cluster.MasterForKey(ctx, stream)
}
