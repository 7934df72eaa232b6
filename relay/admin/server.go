// Package admin serves a daemon's metrics, health and readiness checks, counts of its tables, and a web page for operators
// with its API.
//
// The daemon's default address is on the loopback interface. Changes are refused
// unless a token for operators is set.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Source is a relay and its table.
type Source struct {
	Name string

	// Healthy returns nil if the relay works, or an error with the reason why it doesn't.
	Healthy func() error

	// StandbyReason returns the reason why a working relay takes no messages, or "" if it takes messages. May be nil.
	StandbyReason func() string

	// Status counts the source's table.
	Status func(context.Context) (storage.Status, error)

	// Operator lists and changes the source's messages. A sqlstore.Store is an Operator. If Operator is nil, the page and the
	// API omit this source.
	Operator storage.Operator

	// If Reads isn't nil, the server lists messages with Reads instead of Operator. Give it its own connection pool, so that requests of the
	// page take no connections from the relay or from operators. Set a statement time-out of ReadTimeout for this pool.
	// The server takes at most MostReads + 2 of its connections: MostReads for reads, and one each for the counts of the page and
	// of /status.
	Reads storage.Operator

	// Write writes a message to the table. It lets operators write a copy of a message with another payload. May be nil.
	Write func(context.Context, outbox.Message) error

	// Watch is the relay's observer. It has the state of the sinks, the history and the failed
	// attempts that the page shows. May be nil.
	Watch *Watch
}

// Options configures a server. Address, Sources, Metrics and Logger are required.
type Options struct {
	// Address is host:port. Port 0 selects a free port.
	Address string
	Sources []Source
	Metrics http.Handler
	Logger  *slog.Logger

	// ReaderToken protects everything except /healthz, /readyz, logins and the page's own files. Clients send it as
	// Authorization: Bearer …, or log in with it on the page. If ReaderToken is empty, reading needs no token.
	ReaderToken string

	// Hosts has the host names that requests may use if ReaderToken is empty, in addition to localhost, this machine's name and
	// IP addresses. The server refuses requests with other host names, because another site could make its own name resolve to this
	// server, and its page could then read this server's responses in an operator's browser (DNS rebinding).
	Hosts []string

	// State has the jobs and the ended logins of an earlier Handler. The new Handler takes them over. A caller that makes a State
	// must also close it. If State is nil, the Handler makes and closes its own.
	State *State

	// LoginRefused is called for each wrong token. May be nil.
	LoginRefused func()

	// OperatorToken is required for changes, and also permits reading. If OperatorToken is empty, nothing can be changed.
	OperatorToken string

	// Tokens returns the current values of ReaderToken and OperatorToken, if they can change while the server runs. May be
	// nil. A token that is empty at the start must stay empty. The argument refused is true if a client has sent a token that
	// equals neither value; then Tokens should read the values again.
	Tokens func(ctx context.Context, refused bool) (reader, operator string)

	// HidePayloads hides payloads, and texts that may repeat them: receipts, the values of headers, and the text of an error
	// after its reason. Keys and the names of headers are shown.
	HidePayloads bool

	// TraceURL is the URL of a trace, with {trace_id} in place of the trace's id. The page links the messages that have a
	// header traceparent to their traces. If TraceURL isn't an http or https URL, the page has no links.
	TraceURL string

	// UserHeader is the name of a header that identifies the person who makes a request. The log of actions shows the header's
	// value instead of the name in the request's body. The server uses the header only in requests from TrustedProxies. These
	// proxies must remove the header from their clients' requests. The header grants no permission and replaces no token. If
	// UserHeader is empty, the server uses no header.
	UserHeader     string
	TrustedProxies []netip.Prefix

	// CertFile and KeyFile enable TLS. Both files are read again when CertFile has changed.
	CertFile, KeyFile string
}

// Server is a running server.
type Server struct {
	listener net.Listener
	http     *http.Server
	pages    *Pages
	served   chan error
}

// Limits that keep slow clients from blocking the server. writeTimeout is longer than countTimeout, the time limit of a
// request.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = time.Minute
	maxHeader    = 16 << 10
)

// Start listens on the address, and serves in the background until Stop is called.
func Start(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for admin requests: %w", err)
	}
	if options.CertFile != "" {
		certificate := &certificate{cert: options.CertFile, key: options.KeyFile}
		if _, err := certificate.get(nil); err != nil {
			return nil, errors.Join(fmt.Errorf("read the admin server's certificate: %w", err), listener.Close())
		}
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate.get})
	}
	warn(options, listener.Addr().String())
	pages := Handler(options)
	s := &Server{
		listener: listener,
		pages:    pages,
		http: &http.Server{
			Handler:           pages,
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(options.Logger.Handler(), slog.LevelWarn),
		},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// warn logs insecure settings, if the server can be reached from other machines.
func warn(options Options, address string) {
	if loopback(address) {
		return
	}
	if options.ReaderToken == "" {
		options.Logger.Warn("admin: everybody who can reach this address can read messages: set a reader_token, or listen on 127.0.0.1", "address", address)
	}
	if options.CertFile == "" && options.ReaderToken+options.OperatorToken != "" {
		options.Logger.Warn("admin: tokens are sent to this address without encryption: set tls, or use a proxy with TLS", "address", address)
	}
}

// ownHost refuses requests whose Host isn't a name of this server, if no token protects the pages. Without this check, another
// site could make its own host name resolve to this server, and its page could read this server's responses in an operator's
// browser (DNS rebinding). Requests to an IP address are accepted, because a site can't make an address resolve to another server.
// Every name is accepted for probes and metrics, which show no messages.
func (a *api) ownHost(next http.Handler) http.Handler {
	if a.options.ReaderToken != "" {
		return next
	}
	machine, _ := os.Hostname()
	own := append([]string{"localhost", machine}, a.options.Hosts...)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		host, _, err := net.SplitHostPort(request.Host)
		if err != nil {
			host = strings.Trim(request.Host, "[]")
		}
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		open := slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, request.URL.Path) || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
		if !open && !slices.ContainsFunc(own, func(name string) bool { return name != "" && strings.EqualFold(name, host) }) {
			writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf("%.100q isn't a name of this server: use its address or localhost, set a reader_token, or add the name to hosts", host))
			return
		}
		next.ServeHTTP(w, request)
	})
}

// certificate reads a certificate and its key from their files, and reads both again when the certificate's file has changed.
type certificate struct {
	cert, key string

	mu     sync.Mutex
	read   time.Time // modification time of the certificate's file when it was read
	loaded *tls.Certificate
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.cert)
	if err == nil && (c.loaded == nil || !info.ModTime().Equal(c.read)) {
		var loaded tls.Certificate
		if loaded, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.loaded, c.read = &loaded, info.ModTime()
		}
	}
	if c.loaded != nil { // while only one of the files is new, the previous certificate stays in use
		return c.loaded, nil
	}
	return nil, err
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string {
	if s == nil || s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Stop waits for running requests until the context ends, and then closes their connections. Stop may be called only once.
func (s *Server) Stop(ctx context.Context) error {
	if s == nil || s.listener == nil {
		return errors.New("the admin server is nil or empty: use what Start returned, after checking its error")
	}
	s.pages.Close()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the admin server: %w", err), s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve admin requests: %w", served))
	}
	return err
}
