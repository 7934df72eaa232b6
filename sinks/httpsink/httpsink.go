// Package httpsink is a sink that sends each message as an HTTP request with the payload as the body. All
// messages have the same URL, or a template determines the URL of each message. README.md lists the headers
// and the outcome of each answer.
package httpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Defaults of [Options].
const (
	DefaultConcurrency = 8
	DefaultTimeout     = 10 * time.Second

	DefaultArrayMax            = 100
	DefaultEndpointConcurrency = 4
	DefaultEndpointPause       = time.Minute
)

// Options configure a [Sink]. Only URL is required.
type Options struct {
	// URL is the http or https URL that requests go to. It must not contain a user name, a password or a
	// fragment. The sink hides its path and query in errors. The URL may contain the placeholders {topic},
	// {key}, {id} and {header:NAME}, which the message's values replace. The sink escapes each value for the
	// part of the URL that the placeholder is in. A placeholder at the beginning stands for a URL, with or
	// without a path. If messages choose the scheme, the host or the port, BlockPrivateAddresses is always on.
	URL string

	// Method is POST, the default, or PUT.
	Method string

	// Headers are added to each request. A message can overwrite only Content-Type and User-Agent.
	Headers map[string]settings.Secret

	// MessageHeaders are headers whose values are templates. They may contain the same placeholders as URL.
	MessageHeaders map[string]string

	// ContentType is the Content-Type of messages that have no such header. Defaults to application/json
	// for a JSON object or array, and to application/octet-stream for any other payload.
	ContentType string

	// BearerToken, or Username and Password, authenticate the requests.
	BearerToken settings.Secret
	Username    string
	Password    settings.Secret

	// OAuth2 obtains the bearer tokens of the requests. If it is set, BearerToken must be empty.
	OAuth2 oauth2.Options

	// Timeout limits one request, from connecting to the end of the answer's header. Defaults to
	// [DefaultTimeout].
	Timeout time.Duration

	// Concurrency limits the concurrent requests. Only one message of each key is sent at a time. The
	// sink keeps at most this number of idle connections. Defaults to [DefaultConcurrency].
	Concurrency int

	// EndpointConcurrency, EndpointRate and EndpointPause apply when messages choose the scheme, host or
	// port (the endpoint). They limit the concurrent requests to one endpoint, the requests to it per
	// second, and how long the sink sends nothing to an endpoint that fails. They default to
	// [DefaultEndpointConcurrency], no limit, and [DefaultEndpointPause].
	EndpointConcurrency int
	EndpointRate        int
	EndpointPause       time.Duration

	// EndpointMaxAge is the age from which a message is parked if its endpoint is unavailable. Defaults
	// to 0: such messages are never parked.
	EndpointMaxAge time.Duration

	// RejectStatuses are the statuses among 401, 403 and 404 for which a message is parked. For example,
	// add 404 if the endpoint answers 404 for a customer that was deleted. Defaults to none: a message
	// that gets such an answer is retried.
	RejectStatuses []int

	// SigningSecret signs requests according to Standard Webhooks 1.0. It is a shared secret (whsec_…) or
	// an ed25519 private key (whsk_…). During a rotation it may contain several secrets, separated by spaces;
	// each of them adds a signature.
	SigningSecret settings.Secret

	// Array groups the messages of a batch that have the same URL into JSON arrays of at most ArrayMax
	// messages (by default [DefaultArrayMax]). Each array is one request. README.md describes the elements,
	// which also contain the messages' headers.
	Array    bool
	ArrayMax int

	// CloudEvents sends messages as CloudEvents. Off by default.
	CloudEvents cloudevents.Options

	// BlockPrivateAddresses parks messages whose host resolves to a private, loopback or link-local
	// address or to a cloud provider's metadata service. The sink then uses no proxy.
	BlockPrivateAddresses bool

	// AllowedNetworks are exceptions to BlockPrivateAddresses, such as 10.1.0.0/16.
	AllowedNetworks []string

	// TLS configures connections to https URLs: root certificates and client certificates. Nil trusts the
	// system's roots.
	TLS *tls.Config

	dialer net.Dialer
}

// Sink sends messages as HTTP requests. Its methods may be called concurrently.
type Sink struct {
	target      target
	method      string
	made        map[string]settings.Template // the templates of MessageHeaders, by canonical name
	contentType string
	events      *cloudevents.Encoder
	secrets     atomic.Pointer[secrets]
	timeout     time.Duration
	rejects     []int
	login       bool // the settings contain credentials
	concurrency int
	endpoints   *endpoints // nil: all messages go to one endpoint
	giveUp      time.Duration
	fan         *sinks.Fan
	arrayMax    int           // 0: a request for each message
	slots       chan struct{} // limits concurrent array requests

	unanswered unanswered
}

// secrets has the values that Renew replaces: the secrets of the requests, and the transport
// with its certificates. It is immutable.
type secrets struct {
	static     http.Header // headers of every request
	signatures []signature
	tokens     *oauth2.Source // nil: requests carry no OAuth 2.0 token
	transport  *http.Transport
	redactor   settings.Redactor
	previous   settings.Redactor // removes the secrets that the last Renew replaced
}

var (
	_ sinks.Sink      = (*Sink)(nil)
	_ sinks.Ordered   = (*Sink)(nil)
	_ sinks.Limited   = (*Sink)(nil)
	_ sinks.Destined  = (*Sink)(nil)
	_ sinks.Renewable = (*Sink)(nil)
)

// New returns a sink that sends to options.URL. It makes no connection. The error lists everything that is
// wrong with the options and contains no secret.
func New(options Options) (*Sink, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	events, err := cloudevents.New(cloudevents.HTTP, options.CloudEvents)
	if err != nil {
		return nil, fmt.Errorf("make an http sink: %w", err)
	}
	target, _ := parseTarget(options.URL) // options.check has parsed all of these
	signatures, _ := parseSecrets(options.SigningSecret)
	made, _ := parseHeaders(options.MessageHeaders)
	s := &Sink{
		target:      target,
		method:      options.Method,
		made:        made,
		contentType: options.ContentType,
		events:      events,
		timeout:     options.Timeout,
		rejects:     options.RejectStatuses,
		login:       options.logins() > 0,
		concurrency: options.Concurrency,
		endpoints:   newEndpoints(options, target),
		arrayMax:    options.ArrayMax,
		slots:       make(chan struct{}, options.atOnce(target)),
		giveUp:      options.EndpointMaxAge,
		fan:         sinks.NewFan(options.atOnce(target)),
	}
	s.secrets.Store(&secrets{
		static:     options.staticHeader(),
		signatures: signatures,
		tokens:     newTokens(options),
		transport:  newTransport(options, options.BlockPrivateAddresses || target.chosen),
		redactor:   settings.NewRedactor(append(options.secrets(), target.secrets()...)...),
	})
	return s, nil
}

// newTokens returns the source of OAuth 2.0 tokens, or nil if requests carry none.
func newTokens(options Options) *oauth2.Source {
	if !options.OAuth2.IsSet() {
		return nil
	}
	return oauth2.NewSource(options.OAuth2, newTransport(options, options.BlockPrivateAddresses))
}

// Renew takes over the login, signing secrets and certificates of another Sink for new requests. It implements
// [sinks.Renewable].
//
// Renew doesn't close idle connections: a running request may be about to use one of them, and would fail. They close after
// idleTimeout.
func (s *Sink) Renew(with sinks.Sink) {
	renewed := *with.(*Sink).secrets.Load()
	renewed.previous = s.secrets.Load().redactor
	s.secrets.Store(&renewed)
}

// close closes the idle connections.
func (s *secrets) close() {
	s.transport.CloseIdleConnections()
	s.tokens.Close()
}

// idleTimeout is shorter than the idle timeout of common servers (Node: 5 s), so that a server seldom
// closes a connection just as a request is sent on it.
const idleTimeout = 4 * time.Second

func newTransport(options Options, outsideOnly bool) *http.Transport {
	plain := options.dialer
	plain.Timeout = options.Timeout
	alive := min(max(options.Timeout/2, time.Second), 5*time.Second)
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         counted(plain.DialContext),
		TLSClientConfig:     options.TLS.Clone(),
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConns:        options.Concurrency,
		MaxIdleConnsPerHost: options.Concurrency,
		IdleConnTimeout:     idleTimeout,

		MaxResponseHeaderBytes: mostRead,

		// Without pings, requests would use a dead connection until the kernel closes it, after about a
		// minute and a half.
		HTTP2: &http.HTTP2Config{SendPingTimeout: alive, PingTimeout: alive},
	}
	if outsideOnly {
		allowed, _ := parseNetworks(options.AllowedNetworks)
		transport.Proxy = nil // the guard can't check the addresses to which a proxy connects
		transport.DialContext = counted(guard{allowed}.dial(plain))
	}
	return transport
}

// Destination returns the scheme and host of the URL, but not its path and query, which
// may be secret.
func (s *Sink) Destination() string {
	if s.target.host == nil {
		return "http, to hosts that messages name"
	}
	return s.target.host.Scheme + "://" + s.target.host.Host
}

// Open makes no request to the endpoint: the first message shows whether it is reachable. If requests need
// an OAuth 2.0 token, Open fetches one.
func (s *Sink) Open(ctx context.Context) error {
	if _, err := s.authorize(ctx, http.Header{}); err != nil {
		return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: s.sanitize(err.Error())}
	}
	return nil
}

// Reach connects to the endpoint, with TLS if the URL is https, and sends no request. The result tried is
// false if Reach did not try to connect, because messages choose the host or a proxy is used.
func (s *Sink) Reach(ctx context.Context) (tried bool, err error) {
	to := s.target.host
	if to == nil {
		return false, nil
	}
	transport := s.secrets.Load().transport
	if transport.Proxy != nil {
		if proxy, err := transport.Proxy(&http.Request{URL: to}); proxy != nil || err != nil {
			return false, nil
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	address := net.JoinHostPort(to.Hostname(), portOf(to))
	conn, err := transport.DialContext(limited, "tcp", address)
	if err == nil && to.Scheme == "https" {
		_, err = settings.Handshake(limited, conn, transport.TLSClientConfig, address)
	}
	if conn != nil {
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return true, errors.New(s.sanitize(err.Error()))
	}
	return true, nil
}

// Close closes the idle connections.
func (s *Sink) Close(context.Context) error {
	s.secrets.Load().close()
	return nil
}

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Limits returns limits that keep batches small, so that each batch ends soon: the relay stores the outcomes
// of a batch only when the whole batch has ended.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: cmp.Or(s.arrayMax, 8*s.concurrency)}
}

// Send makes one request for each message, or for each array of messages. It makes several requests
// concurrently.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	r := &round{began: time.Now(), mixed: s.isMixed(batch)}
	if s.arrayMax > 0 {
		return s.sendArrays(ctx, r, batch)
	}
	return s.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome { return s.deliver(ctx, r, m) })
}

// overdue limits how long messages of slow endpoints are postponed because their batch also has messages of
// other endpoints. Without this limit, a message that is always in such batches would never be sent.
const overdue = 10 * time.Second

// isMixed reports whether the batch has both messages of slow endpoints and messages of other endpoints. It
// returns false if a message of a slow endpoint is overdue.
func (s *Sink) isMixed(batch []sinks.Message) bool {
	if s.endpoints == nil {
		return false
	}
	all := make([]asked, 0, len(batch))
	for i := range batch {
		m := &batch[i]
		if to, err := s.target.of(m); err == nil {
			all = append(all, asked{nameOf(to), !m.CreatedAt.IsZero() && time.Since(m.CreatedAt) > overdue})
		}
	}
	return s.endpoints.mixed(all)
}
