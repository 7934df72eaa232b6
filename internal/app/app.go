// Package app is the daemon: a relay for each source of a configuration, their
// metrics, and the admin server, started and stopped together. It is what
// `rowrelay run` runs.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/sinks"
)

// Store is what the daemon needs of a source's table. sqlstore has it.
type Store interface {
	relay.Store
	relay.Operator
}

// Table is an open source.
type Table struct {
	Store    Store
	Listener relay.Listener // wakes the relay; nil where the relay polls
	Warnings []string       // what doesn't fit; is logged
	Close    func() error   // lets go of the database
}

// Options are what the daemon can't read from a configuration.
type Options struct {
	// Open opens a source's table. Required.
	Open func(context.Context, config.Source) (Table, error)

	// Sinks are the kinds of sinks that there are. Required.
	Sinks *sinks.Registry

	// Build says which program this is.
	Build metrics.Build

	// Drain ends the daemon as soon as no source has a message left that could
	// be delivered now.
	Drain bool

	// Logger receives what an operator should know; never a payload or a
	// secret. Defaults to slog.Default.
	Logger *slog.Logger
}

// App is a daemon. It is started and stopped once.
type App struct {
	config  config.Config
	options Options
	logger  *slog.Logger
	metrics *metrics.Metrics

	sources  []*source
	admin    *admin.Server
	cleanups []func(context.Context) error // run last in, first out
	running  sync.WaitGroup                // relays
	watching sync.WaitGroup
	ended    chan struct{} // closed when every relay has ended, or one has failed
	end      sync.Once
}

// New makes a daemon from a configuration that package config has read. It
// opens nothing; the error tells of all sinks that can't be made.
func New(c config.Config, options Options) (*App, error) {
	if len(c.Sources) == 0 || options.Open == nil || options.Sinks == nil {
		return nil, errors.New("make the daemon: sources, Open and Sinks are required")
	}
	a := &App{config: c, options: options, logger: options.Logger, metrics: metrics.New(options.Build), ended: make(chan struct{})}
	if a.logger == nil {
		a.logger = slog.Default()
	}
	var problems []error
	for _, from := range c.Sources {
		s, err := a.newSource(from)
		problems = append(problems, err)
		a.sources = append(a.sources, s)
	}
	return a, errors.Join(problems...)
}

// Metrics are the daemon's metrics.
func (a *App) Metrics() *metrics.Metrics { return a.metrics }

// Addr is the address of the admin server, or nothing without one.
func (a *App) Addr() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.Addr()
}

// Wake makes every relay look for new messages now. It never blocks. Call it
// only after Start.
func (a *App) Wake() {
	for _, s := range a.sources {
		s.relay.Wake()
	}
}

func inSource(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("source %q: %w", name, err)
}
