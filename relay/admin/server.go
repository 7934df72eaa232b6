// Package admin serves what an operator and a supervisor want to know of a
// daemon: its metrics, whether it is alive, whether it is ready, and what its
// tables hold; and a page to see and steer it by.
//
// It listens on the loopback interface unless it is told otherwise, and changes
// nothing unless it has a token for operators.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Source is one relay, as the server sees it.
type Source struct {
	Name string

	// Healthy returns nil if the relay works, or what is wrong.
	Healthy func() error

	// StandbyReason returns why the relay takes no message though it works, or "" if it does. May be nil.
	StandbyReason func() string

	// Status counts what the source's table holds.
	Status func(context.Context) (storage.Status, error)

	// Operator shows and changes messages; a sqlstore.Store is one. Without it the page and the
	// API don't have this source.
	Operator storage.Operator

	// Reads lists messages in the place of Operator, if it isn't nil. With a pool of its own, whose statements the server ends
	// after ReadTimeout, readers of the page take no connection from the relay or from operators. At most MostReads calls
	// run at the same time, and one of Status.
	Reads storage.Operator

	// Watch is the relay's observer: what the page shows of its sinks, of the last hours, and of
	// failed attempts. May be nil.
	Watch *Watch
}

// Options say what a server shows. Address, Sources, Metrics and Logger are required.
type Options struct {
	// Address is host:port; port 0 takes a free one.
	Address string
	Sources []Source
	Metrics http.Handler
	Logger  *slog.Logger

	// ReaderToken is what it takes to see anything but /healthz and /readyz: Authorization: Bearer
	// …, or a login on the page. Without one nothing is needed.
	ReaderToken string

	// Hosts are names by which the pages may be asked without a ReaderToken, besides localhost, this machine's name and
	// addresses: by another name that leads here, a page of another site could read them in an operator's browser.
	Hosts []string

	// State continues that of earlier pages. Nil: the pages begin with none. Who makes one closes it.
	State *State

	// LoginRefused is called for each wrong token. May be nil.
	LoginRefused func()

	// OperatorToken is what it takes to change anything. Without one nobody can. Who has it
	// needs no other.
	OperatorToken string

	// Tokens are ReaderToken and OperatorToken as they are now, where they are renewed. May be nil. Whether there is
	// one of either doesn't change.
	Tokens func() (reader, operator string)

	// HidePayloads never shows what messages carry, nor texts that may repeat it: receipts, the values of headers, and of errors all but the reason. Keys and the names of headers are shown.
	HidePayloads bool

	// CertFile and KeyFile make the server speak TLS. They are read again when they change.
	CertFile, KeyFile string
}

// Server is a running server.
type Server struct {
	listener net.Listener
	http     *http.Server
	pages    *Pages
	served   chan error
}

// Time-outs of the server: a client that is slow must not hold it up. An answer
// takes at most as long as counting a table may.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 15 * time.Second
	idleTimeout  = time.Minute
	maxHeader    = 16 << 10
)

// Start listens and serves in the background until Stop.
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

// warn tells of what should not be, where others than this machine can reach the server.
func warn(options Options, address string) {
	if loopback(address) {
		return
	}
	if options.ReaderToken == "" {
		options.Logger.Warn("admin: everybody who reaches this address can read messages: set a reader_token, or listen on 127.0.0.1", "address", address)
	}
	if options.CertFile == "" && options.ReaderToken+options.OperatorToken != "" {
		options.Logger.Warn("admin: tokens travel unencrypted to this address: set tls, or put a proxy with TLS before it", "address", address)
	}
}

// ownHost refuses requests under a name that isn't this server's, where no token protects what is shown: by a name of its own
// that leads here, a page of another site could read it in an operator's browser. A browser asks other sites for nothing by an
// address. Probes and metrics show no message, and are asked by many names.
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
			writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf("%.100q is no name of this server: ask by its address or localhost, set a reader_token, or add the name to hosts", host))
			return
		}
		next.ServeHTTP(w, request)
	})
}

// certificate is read from its files, and again when they are new.
type certificate struct {
	cert, key string

	mu     sync.Mutex
	read   time.Time // the file's time
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
	if c.loaded != nil { // while one file is new and the other isn't, the old ones serve
		return c.loaded, nil
	}
	return nil, err
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string {
	if s == nil || s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Stop lets the requests that are under way finish until the context ends, and
// then closes their connections. It may be called once.
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
