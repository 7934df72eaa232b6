package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// conn is a connection to a broker. One goroutine at a time uses it.
type conn struct {
	raw      net.Conn
	link     *countingConn
	protocol *protocol.Conn
	usedAt   time.Time
	retireAt time.Time // when its login is about to end; zero: never
}

// countingConn knows whether something was written. It counts what TLS is given,
// not what TLS writes.
type countingConn struct {
	net.Conn
	written int64
}

func (c *countingConn) Write(text []byte) (int, error) {
	n, err := c.Conn.Write(text)
	c.written += int64(n)
	return n, err
}

func newConn(raw, link net.Conn, clientID string) *conn {
	counting := &countingConn{Conn: link}
	return &conn{raw: raw, link: counting, protocol: protocol.NewConn(counting, clientID)}
}

// roundTrip is cut off when the context ends: nothing of the request is written
// from then on.
func (c *conn) roundTrip(ctx context.Context, request kafkago.Request) (kafkago.Response, error) {
	before := c.link.written
	stop := context.AfterFunc(ctx, c.close)
	response, err := c.protocol.RoundTrip(request)
	if !stop() && err == nil {
		c.retireAt = time.Now() // it is being closed, though the answer came in time
	}
	if err != nil {
		return nil, &wireError{arrived: c.link.written > before, err: err}
	}
	return response, nil
}

// close doesn't say good-bye as TLS would, which can take time.
func (c *conn) close() { _ = c.raw.Close() }

// Brokers and what is between close connections that are idle for minutes.
const (
	longestIdle    = time.Minute
	suspiciousIdle = time.Second
)

// usable says that an idle connection is likely to work still.
func (c *conn) usable() bool {
	idle := time.Since(c.usedAt)
	switch {
	case idle > longestIdle, !c.retireAt.IsZero() && !time.Now().Before(c.retireAt):
		return false
	case idle < suspiciousIdle:
		return true
	}
	return c.silent()
}

// silent looks whether the other side has closed the connection: then there is
// something to read.
func (c *conn) silent() bool {
	if err := c.raw.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := c.raw.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded) && c.raw.SetReadDeadline(time.Time{}) == nil
}

// agree asks which versions of each request the broker knows.
func (c *conn) agree() error {
	answer, err := c.protocol.RoundTrip(new(apiversions.Request))
	if err != nil {
		return fmt.Errorf("greet the broker (is TLS set as it expects?): %w", err)
	}
	known := answer.(*apiversions.Response)
	if known.ErrorCode != 0 {
		return fmt.Errorf("greet the broker: %w", kafkago.Error(known.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(known.ApiKeys))
	for _, k := range known.ApiKeys {
		versions[protocol.ApiKey(k.ApiKey)] = protocol.ApiKey(k.ApiKey).SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.protocol.SetVersions(versions)
	return nil
}
