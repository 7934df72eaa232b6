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

	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// wire is a pool of connections to brokers. Each connection has one request in
// flight at a time. wire replaces kafka-go's Transport, which runs background
// goroutines, continues writing after a context has ended, and doesn't say whether
// any bytes of a failed request were written.
type wire struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	clientID string
	timeout  time.Duration // for connecting, including the TLS handshake and the login

	mu      sync.Mutex
	secrets *secrets
	idle    map[string][]*conn // by address, the most recently used last
}

// secrets has the secrets and certificates of connections. It is immutable.
type secrets struct {
	tls      *tls.Config                          // nil: no TLS
	login    func(context.Context) (login, error) // returns the current login; nil: no login
	source   *oauth2.Source                       // nil: no OAuth 2.0
	redactor settings.Redactor
	previous settings.Redactor // removes the secrets that the last Renew replaced
}

func newWire(o Options) *wire {
	var source *oauth2.Source
	if o.OAuth2.IsSet() {
		source = oauth2.NewSource(o.OAuth2, tokenTransport(o))
	}
	held := &secrets{tls: o.TLS.Clone(), login: loginsOf(o, source), source: source, redactor: settings.NewRedactor(o.Password, o.OAuth2.ClientSecret)}
	return &wire{dial: o.Dial, clientID: o.ClientID, timeout: o.RequestTimeout, secrets: held, idle: map[string][]*conn{}}
}

func (w *wire) held() *secrets {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.secrets
}

// renew replaces the secrets for new connections. Each existing connection is closed as soon as it is idle.
func (w *wire) renew(with *secrets) {
	renewed := *with
	w.mu.Lock()
	before := w.secrets
	renewed.previous = before.redactor
	w.secrets = &renewed
	w.mu.Unlock()
	w.closeIdle()
	before.source.Close()
}

// wireError is an error of the connection, in contrast to an error code in a
// broker's answer.
type wireError struct {
	arrived bool // bytes of the request were written: the broker may have executed it
	err     error
}

func (e *wireError) Error() string { return e.err.Error() }

func (e *wireError) Unwrap() error { return e.err }

// mayHaveArrived reports whether the broker may have executed the failed request.
func mayHaveArrived(err error) bool {
	failed := (*wireError)(nil)
	return !errors.As(err, &failed) || failed.arrived
}

// RoundTrip sends a request to the broker at an address and returns the answer.
// Its errors are wireErrors.
func (w *wire) RoundTrip(ctx context.Context, to net.Addr, request kafkago.Request) (kafkago.Response, error) {
	c, err := w.take(ctx, to.String())
	if err != nil {
		return nil, &wireError{err: err}
	}
	response, err := c.roundTrip(ctx, request)
	if err != nil {
		c.close()
		w.drop(to.String()) // the other connections to this broker are probably broken, too
		return nil, err
	}
	w.giveBack(to.String(), c)
	return response, nil
}

// stream sends a request in the protocol's compact format. It calls the function read to
// parse the body of the answer while the answer arrives. It returns a wireError, or the
// error that read returned.
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
	if err == nil { // discard the rest of the answer
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

// connect returns a new connection that is ready for requests. If the broker refuses a token that may have been revoked, connect
// tries once more with another token.
func (w *wire) connect(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	c, err := w.connectOnce(ctx, address)
	if refused := (*loginError)(nil); errors.As(err, &refused) && refused.again {
		return w.connectOnce(ctx, address)
	}
	return c, err
}

func (w *wire) connectOnce(ctx context.Context, address string) (*conn, error) {
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
		if ctx.Err() != nil { // the end of the context has closed the connection
			err = fmt.Errorf("the broker has not answered: %w", ctx.Err())
		}
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return c, nil
}

// greet prepares a connection: TLS handshake, API versions, login.
func (w *wire) greet(ctx context.Context, raw net.Conn, address string) (*conn, error) {
	link, held := raw, w.held()
	if held.tls != nil {
		var err error
		if link, err = settings.Handshake(ctx, raw, held.tls, address); err != nil {
			return nil, fmt.Errorf("TLS handshake (does the broker expect TLS here?): %w", err)
		}
	}
	c := newConn(raw, link, w.clientID)
	c.secrets = held
	if err := c.agree(w.clientID); err != nil {
		return nil, err
	}
	if held.login == nil {
		return c, nil
	}
	return c, c.logIn(ctx, held.login)
}

// giveBack returns a connection to the pool, or closes it if it was not made with the
// current secrets. It also closes the connections to the same address that have been idle
// for longer than longestIdle.
func (w *wire) giveBack(address string, c *conn) {
	c.usedAt = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.secrets != w.secrets {
		c.close()
		return
	}
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

// closeIdle closes all idle connections.
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

// conn is a connection to a broker. It must not be used concurrently.
type conn struct {
	raw      net.Conn
	link     *countingConn
	protocol *protocol.Conn
	secrets  *secrets // the secrets with which the connection was made
	usedAt   time.Time
	retireAt time.Time // when to stop using the connection, before its login expires; zero: never
}

// countingConn counts the bytes that were written. With TLS it counts plaintext
// bytes.
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

// agree requests the API versions that the broker supports, and selects one version of each API.
func (c *conn) agree(clientID string) error {
	answer, err := c.versions(clientID)
	if err != nil {
		return fmt.Errorf("ask for the broker's API versions (does the broker expect TLS, or no TLS?): %w", err)
	}
	known := answer.(*apiversions.Response)
	if known.ErrorCode != 0 {
		return fmt.Errorf("ask for the broker's API versions: %w", kafkago.Error(known.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(known.ApiKeys))
	for _, k := range known.ApiKeys {
		versions[protocol.ApiKey(k.ApiKey)] = protocol.ApiKey(k.ApiKey).SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.protocol.SetVersions(versions)
	return nil
}

// versions requests the API versions that the broker supports. It checks the beginning of the answer, because kafka-go would interpret
// the text of an HTTP server as a size, and allocate gigabytes.
func (c *conn) versions(clientID string) (protocol.Message, error) {
	const (
		correlation = 0x726f7772 // differs from the correlation ids of the other requests on this connection
		mostBytes   = 1 << 20    // brokers answer with a few kilobytes
	)
	if err := protocol.WriteRequest(c.protocol, 0, correlation, clientID, new(apiversions.Request)); err != nil {
		return nil, err
	}
	head, err := c.protocol.Peek(8) // if Peek fails, ReadResponse returns a better error
	switch {
	case err != nil:
	case string(head[:5]) == "HTTP/":
		return nil, errors.New("an HTTP server has answered, not a broker")
	case binary.BigEndian.Uint32(head) > mostBytes || binary.BigEndian.Uint32(head[4:]) != correlation:
		return nil, fmt.Errorf("the answer %q is not from a Kafka broker", head)
	}
	_, answer, err := protocol.ReadResponse(c.protocol, protocol.ApiVersions, 0)
	return answer, err
}

// roundTrip sends a request and returns the answer. When the context ends, it
// closes the connection, so that nothing is written after that.
func (c *conn) roundTrip(ctx context.Context, request kafkago.Request) (kafkago.Response, error) {
	before := c.link.written
	stop := context.AfterFunc(ctx, c.close)
	response, err := c.protocol.RoundTrip(request)
	if !stop() && err == nil {
		c.retireAt = time.Now() // the answer is complete, but the end of the context closes the connection
	}
	if err != nil {
		return nil, &wireError{arrived: c.link.written > before, err: err}
	}
	return response, nil
}

// ask sends a request and reads the header of the answer.
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
		return nil, fmt.Errorf("read the answer (does the broker support API key %d? Kafka 2.8 and newer do): %w", key, err)
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	answer := &stream{from: bufio.NewReaderSize(io.LimitReader(c.link, n), 64<<10)}
	answer.skip(4) // correlation id
	answer.tags()
	return answer, answer.err
}

// close closes the TCP connection without TLS's closing alert, because sending the alert could
// block.
func (c *conn) close() { _ = c.raw.Close() }

// Brokers, firewalls and load balancers close connections that are idle for
// minutes. So the pool closes a connection that has been idle for longestIdle. If a
// connection has been idle for suspiciousIdle, the pool checks that it is still open before
// using it.
const (
	longestIdle    = time.Minute
	suspiciousIdle = time.Second
)

// usable reports whether an idle connection probably still works.
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

// silent reports whether a read from the connection would block. If the other side has
// closed the connection, a read returns immediately.
func (c *conn) silent() bool {
	if err := c.raw.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return false
	}
	_, err := c.raw.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded) && c.raw.SetReadDeadline(time.Time{}) == nil
}

// stream parses an answer in the protocol's compact format while it arrives.
// After an error its methods return zero values.
type stream struct {
	from *bufio.Reader
	err  error
	head [batchBytes]byte
}

// take reads n bytes; n must not be greater than batchBytes. The result is valid
// until the next call.
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
		err = errors.New("the broker's answer is malformed")
	}
	if r.err = err; err != nil {
		return 0
	}
	return int(value)
}

// tags skips tagged fields.
func (r *stream) tags() {
	for left := r.uvarint(); left > 0 && r.err == nil; left-- {
		r.uvarint()
		r.skip(r.uvarint())
	}
}

// failure returns the error that occurred while reading or, if none occurred, the broker's error code.
func (r *stream) failure(code kafkago.Error) error {
	if r.err == nil && code != 0 {
		return code
	}
	return r.err
}
