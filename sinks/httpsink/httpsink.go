// Package httpsink is a sink that sends each message as an HTTP request, with the
// payload as its body, to one URL or to one that the message gives. README.md has
// the headers, and what each answer leads to.
package httpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
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

// Options say where requests go and how they are made. Only URL is required.
type Options struct {
	// URL is where the requests go: http or https, without a user name, a
	// password or a fragment. Its path and query are treated as secret. It may
	// have places that each message fills: {topic}, {key}, {id} and
	// {header:NAME}; values are escaped for where they stand. One at the
	// beginning stands for a URL, with or without a path. Where a message has a
	// say in the scheme, the host or the port, BlockPrivateAddresses holds in any case.
	URL string

	// Method is POST, the default, or PUT.
	Method string

	// Headers are added to each request. A message can't overwrite them, but
	// for Content-Type and User-Agent.
	Headers map[string]settings.Secret

	// MessageHeaders are headers made of each message, by templates as in URL.
	MessageHeaders map[string]string

	// ContentType is that of messages without a Content-Type header. Defaults
	// to application/json for a JSON object or array, and to
	// application/octet-stream for any other payload.
	ContentType string

	// BearerToken, or Username and Password, authenticate the requests.
	BearerToken settings.Secret
	Username    string
	Password    settings.Secret

	// OAuth2 gets the bearer tokens of the requests, instead of BearerToken.
	OAuth2 OAuth2

	// Timeout is how long one request may take, from the connection to the end
	// of the answer's header. Defaults to [DefaultTimeout].
	Timeout time.Duration

	// Concurrency is how many requests are under way at once, at most, for one
	// message of a key at a time. So many connections are kept. Defaults to
	// [DefaultConcurrency].
	Concurrency int

	// EndpointConcurrency, EndpointRate and EndpointPause are for URLs whose
	// address a message has a say in: how many requests to one scheme, host and
	// port are under way at once, and begin a second, at most; and how long one
	// that fails is left alone, at the longest. Default to
	// [DefaultEndpointConcurrency], no rate, and [DefaultEndpointPause].
	EndpointConcurrency int
	EndpointRate        int
	EndpointPause       time.Duration

	// EndpointMaxAge is the age at which a message is parked when its endpoint
	// can't take it. Defaults to 0: never.
	EndpointMaxAge time.Duration

	// RejectStatuses are those of 401, 403 and 404 that are a message's own fault, as of an
	// endpoint that answers so for a customer that is gone: such a message is parked. Defaults to none:
	// they are the endpoint's trouble, and the message is tried again.
	RejectStatuses []int

	// SigningSecret signs requests as Standard Webhooks 1.0 has it: a shared
	// secret (whsec_…) or an ed25519 private key (whsk_…), or several with
	// blanks between them, which all sign, as during a rotation.
	SigningSecret settings.Secret

	// Array sends the messages of a batch that go to one URL as one JSON array,
	// ArrayMax of them at most; defaults to [DefaultArrayMax]. README.md has the
	// form. Messages' own headers are in the array then.
	Array    bool
	ArrayMax int

	// CloudEvents makes the requests CloudEvents; off by default.
	CloudEvents cloudevents.Options

	// BlockPrivateAddresses refuses to connect to addresses that are private, loopback,
	// link-local or a provider's own, after names were resolved: such a message
	// is parked. Proxies are not used then.
	BlockPrivateAddresses bool

	// AllowedNetworks are those that may be reached although addresses inside
	// are refused, such as 10.1.0.0/16.
	AllowedNetworks []string

	// TLS configures connections to https URLs: own roots, client
	// certificates. Nil trusts the system's roots.
	TLS *tls.Config

	dialer net.Dialer // of the connections
}

// Sink sends messages as HTTP requests. Its methods may be called concurrently.
type Sink struct {
	target      target
	method      string
	static      http.Header                  // on every request
	made        map[string]settings.Template // of each message
	contentType string
	events      *cloudevents.Encoder
	signatures  []signature
	tokens      *tokens // nil: none are needed
	timeout     time.Duration
	rejects     []int
	login       bool // the settings have one
	concurrency int
	transport   *http.Transport
	endpoints   *endpoints // nil: the one endpoint is the sink
	giveUp      time.Duration
	fan         *sinks.Fan
	arrayMax    int           // 0: a request for each message
	slots       chan struct{} // requests with arrays at once
	redactor    settings.Redactor

	unanswered unanswered
}

var (
	_ sinks.Sink     = (*Sink)(nil)
	_ sinks.Ordered  = (*Sink)(nil)
	_ sinks.Limited  = (*Sink)(nil)
	_ sinks.Destined = (*Sink)(nil)
)

// New returns a sink that sends to a URL. It makes no connection. The error has
// all that is wrong with the options, and shows no secret.
func New(options Options) (*Sink, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	events, err := cloudevents.New(cloudevents.HTTP, options.CloudEvents)
	if err != nil {
		return nil, fmt.Errorf("make an http sink: %w", err)
	}
	target, _ := parseTarget(options.URL) // checked before, as all of these
	signatures, _ := parseSecrets(options.SigningSecret)
	made, _ := parseHeaders(options.MessageHeaders)
	return &Sink{
		target:      target,
		method:      options.Method,
		static:      options.staticHeader(),
		made:        made,
		contentType: options.ContentType,
		events:      events,
		signatures:  signatures,
		timeout:     options.Timeout,
		rejects:     options.RejectStatuses,
		login:       options.logins() > 0,
		concurrency: options.Concurrency,
		tokens:      newTokens(options.OAuth2, newTransport(options, options.BlockPrivateAddresses)),
		transport:   newTransport(options, options.BlockPrivateAddresses || target.chosen),
		endpoints:   newEndpoints(options, target),
		arrayMax:    options.ArrayMax,
		slots:       make(chan struct{}, options.atOnce(target)),
		giveUp:      options.EndpointMaxAge,
		fan:         sinks.NewFan(options.atOnce(target)),
		redactor:    settings.NewRedactor(append(options.secrets(), target.secrets()...)...),
	}, nil
}

// idleTimeout closes connections before common servers do (Node after 5 s), so
// that few requests meet a connection that is just being closed.
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

		// Without pings a dead connection is used until the kernel gives it up, after a minute and a half.
		HTTP2: &http.HTTP2Config{SendPingTimeout: alive, PingTimeout: alive},
	}
	if outsideOnly {
		allowed, _ := parseNetworks(options.AllowedNetworks)
		transport.Proxy = nil // it would resolve and connect for us
		transport.DialContext = counted(guard{allowed}.dial(plain))
	}
	return transport
}

// Destination is the scheme and host of the URL, whose path and query may be secret.
func (s *Sink) Destination() string {
	if s.target.host == nil {
		return "http, to hosts that messages name"
	}
	return s.target.host.Scheme + "://" + s.target.host.Host
}

// Open makes no request to the endpoint: whether it is there, the first message
// will tell. It gets a token where requests need one.
func (s *Sink) Open(ctx context.Context) error {
	if _, err := s.authorize(ctx, http.Header{}); err != nil {
		return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: s.sanitize(err.Error())}
	}
	return nil
}

// Reach connects to the endpoint, with TLS where it has that, and sends no request. It says
// whether it has tried: not where a message chooses the host, nor through a proxy.
func (s *Sink) Reach(ctx context.Context) (tried bool, err error) {
	to := s.target.host
	if to == nil {
		return false, nil
	}
	if s.transport.Proxy != nil {
		if proxy, err := s.transport.Proxy(&http.Request{URL: to}); proxy != nil || err != nil {
			return false, nil
		}
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	address := net.JoinHostPort(to.Hostname(), portOf(to))
	conn, err := s.transport.DialContext(limited, "tcp", address)
	if err == nil && to.Scheme == "https" {
		_, err = settings.Handshake(limited, conn, s.transport.TLSClientConfig, address)
	}
	if conn != nil {
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return true, errors.New(s.sanitize(err.Error()))
	}
	return true, nil
}

// Close closes the connections.
func (s *Sink) Close(context.Context) error {
	s.transport.CloseIdleConnections()
	s.tokens.close()
	return nil
}

// Order promises that what is delivered is a prefix of the batch within each
// key.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Limits keeps a batch small enough to be over soon: its outcomes are written
// back together.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: cmp.Or(s.arrayMax, 8*s.concurrency)}
}

// Send makes a request for each message, several at once; or for each array.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	r := &round{began: time.Now(), mixed: s.isMixed(batch)}
	if s.arrayMax > 0 {
		return s.sendArrays(ctx, r, batch)
	}
	return s.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome { return s.deliver(ctx, r, m) })
}

// overdue is the age at which a message of a slow endpoint is sent in any case,
// whatever else it holds up: among messages of others it would never have its
// turn.
const overdue = 10 * time.Second

// isMixed says that the batch has messages of slow endpoints, none of which is
// overdue, and of others.
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
