// Package admin serves what an operator and a supervisor want to know of a
// daemon: its metrics, whether it is alive, whether it is ready, and what its
// tables hold. It has no authentication, and so listens on the loopback
// interface unless it is told otherwise.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Source is one relay, as the server sees it.
type Source struct {
	Name string

	// Healthy returns nil if the relay works, or what is wrong.
	Healthy func() error

	// Status counts what the source's table holds.
	Status func(context.Context) (storage.Status, error)
}

// Options say what a server shows. All are required.
type Options struct {
	// Address is host:port; port 0 takes a free one.
	Address string
	Sources []Source
	Metrics http.Handler
	Logger  *slog.Logger
}

// Server is a running server.
type Server struct {
	listener net.Listener
	http     *http.Server
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
	s := &Server{
		listener: listener,
		http: &http.Server{
			Handler:           Handler(options),
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

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Stop lets the requests that are under way finish until the context ends, and
// then closes their connections. It may be called once.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the admin server: %w", err), s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve admin requests: %w", served))
	}
	return err
}
