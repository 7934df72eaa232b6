package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// wire is a pool of connections to brokers, each for one request at a time. It
// stands in the place of kafka-go's Transport, which keeps goroutines of its own,
// goes on writing after a context has ended, and doesn't tell whether a request
// that failed has gone out.
type wire struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config    // nil: without
	login    sasl.Mechanism // nil: without
	clientID string
	timeout  time.Duration // for a connection to be made, all of it

	mu   sync.Mutex
	idle map[string][]*conn // by address, the one used last at the end
}

func newWire(o Options) *wire {
	w := &wire{dial: o.Dial, clientID: o.ClientID, timeout: o.RequestTimeout, tls: o.TLS.Clone(), idle: map[string][]*conn{}}
	if build := mechanisms[o.SASL]; build != nil {
		w.login = build(o.Username, o.Password.Reveal())
	}
	return w
}

// wireError is an error of the connection, as against a broker's answer.
type wireError struct {
	arrived bool // something of the request has gone out: it may have been obeyed
	err     error
}

func (e *wireError) Error() string { return e.err.Error() }

func (e *wireError) Unwrap() error { return e.err }

// mayHaveArrived says that a failed request may have been obeyed.
func mayHaveArrived(err error) bool {
	failed := (*wireError)(nil)
	return !errors.As(err, &failed) || failed.arrived
}

// RoundTrip sends a request to the broker at this address. Its errors are
// wireErrors.
func (w *wire) RoundTrip(ctx context.Context, to net.Addr, request kafkago.Request) (kafkago.Response, error) {
	c, err := w.take(ctx, to.String())
	if err != nil {
		return nil, &wireError{err: err}
	}
	response, err := c.roundTrip(ctx, request)
	if err != nil {
		c.close()
		w.drop(to.String()) // the others to it are likely to be dead too
		return nil, err
	}
	w.giveBack(to.String(), c)
	return response, nil
}

// stream sends a request of the protocol's compact form, and has what the answer
// has after its head be read as it comes. Its errors are wireErrors, or the reader's
// own.
func (w *wire) stream(ctx context.Context, address string, key, version int16, body []byte, read func(*stream) error) error {
	c, err := w.take(ctx, address)
	if err != nil {
		return &wireError{err: err}
	}
	stop := context.AfterFunc(ctx, c.close)
	answer, err := c.ask(w.clientID, key, version, body)
	var refused error
	if err == nil {
		refused = read(answer)
		err = answer.err
	}
	if err == nil { // what is left of it
		_, err = io.Copy(io.Discard, answer.from)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return &wireError{arrived: true, err: err}
	}
	w.giveBack(address, c)
	return refused
}

func (w *wire) take(ctx context.Context, address string) (*conn, error) {
	for c := w.pop(address); c != nil; c = w.pop(address) {
		if c.usable() {
			return c, nil
		}
		c.close()
	}
	return w.connect(ctx, address)
}

func (w *wire) pop(address string) *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := w.idle[address]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	w.idle[address] = idle[:len(idle)-1]
	return c
}

// connect makes a connection that is ready for requests.
func (w *wire) connect(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	raw, err := w.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c, err := w.greet(ctx, raw, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return c, nil
}

// greet does what comes before the first request.
func (w *wire) greet(ctx context.Context, raw net.Conn, address string) (*conn, error) {
	link := raw
	if w.tls != nil {
		var err error
		if link, err = settings.Handshake(ctx, raw, w.tls, address); err != nil {
			return nil, fmt.Errorf("TLS handshake (does the broker expect TLS here?): %w", err)
		}
	}
	c := newConn(raw, link, w.clientID)
	if err := c.agree(); err != nil {
		return nil, err
	}
	if w.login == nil {
		return c, nil
	}
	return c, c.logIn(ctx, w.login)
}

// giveBack keeps a connection, and closes those that nobody has needed for long.
func (w *wire) giveBack(address string, c *conn) {
	c.usedAt = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := append(w.idle[address], c)
	for c.usedAt.Sub(idle[0].usedAt) > longestIdle {
		idle[0].close()
		idle = slices.Delete(idle, 0, 1)
	}
	w.idle[address] = idle
}

// drop closes the idle connections to an address.
func (w *wire) drop(address string) {
	for c := w.pop(address); c != nil; c = w.pop(address) {
		c.close()
	}
}

// closeIdle closes the connections that no Send uses.
func (w *wire) closeIdle() {
	w.mu.Lock()
	idle := w.idle
	w.idle = map[string][]*conn{}
	w.mu.Unlock()
	for _, connections := range idle {
		for _, c := range connections {
			c.close()
		}
	}
}

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

// ask sends a request, and reads the head of the answer.
func (c *conn) ask(clientID string, key, version int16, body []byte) (*stream, error) {
	const correlation = 1
	head := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	head = binary.BigEndian.AppendUint16(head, uint16(version))
	head = binary.BigEndian.AppendUint32(head, correlation)
	head = append(binary.BigEndian.AppendUint16(head, uint16(len(clientID))), clientID...)
	request := append(append(head, 0), body...) // no tagged fields
	binary.BigEndian.PutUint32(request, uint32(len(request)-4))
	if _, err := c.link.Write(request); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.link, size[:]); err != nil {
		return nil, fmt.Errorf("read the answer (does the broker know request %d? Kafka 2.8 and newer do): %w", key, err)
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	answer := &stream{from: bufio.NewReaderSize(io.LimitReader(c.link, n), 64<<10)}
	answer.skip(4) // which request it is to
	answer.tags()
	return answer, answer.err
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

// stream reads an answer in the protocol's compact form while it comes. After an
// error all it reads is zero.
type stream struct {
	from *bufio.Reader
	err  error
	head [batchBytes]byte
}

// take returns up to batchBytes, until the next call.
func (r *stream) take(n int) []byte {
	taken := r.head[:n]
	clear(taken)
	if r.err == nil {
		_, r.err = io.ReadFull(r.from, taken)
	}
	return taken
}

func (r *stream) skip(n int) {
	if r.err == nil && n > 0 {
		_, r.err = io.CopyN(io.Discard, r.from, int64(n))
	}
}

func (r *stream) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }

func (r *stream) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }

func (r *stream) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *stream) uvarint() int {
	if r.err != nil {
		return 0
	}
	value, err := binary.ReadUvarint(r.from)
	if err == nil && value > 1<<31 {
		err = errors.New("the broker's answer makes no sense")
	}
	if r.err = err; err != nil {
		return 0
	}
	return int(value)
}

func (r *stream) tags() {
	for left := r.uvarint(); left > 0 && r.err == nil; left-- {
		r.uvarint()
		r.skip(r.uvarint())
	}
}

func (r *stream) failure(code kafkago.Error) error {
	if r.err == nil && code != 0 {
		return code
	}
	return r.err
}
