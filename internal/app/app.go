// Package app is the daemon: a relay for each source of a configuration, their
// metrics, and the admin server, started and stopped together. It is what
// `rowrelay run` runs.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

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

// source is a table with its relay.
type source struct {
	config   config.Source
	sinks    map[string]relay.SinkOptions
	observer *metrics.Source
	table    Table
	relay    *relay.Relay
	err      error // of the relay's Run; read after it has ended
}

// newSource makes a source's own sinks: each relay opens and closes its own.
func (a *App) newSource(from config.Source) (*source, error) {
	s := &source{config: from, sinks: map[string]relay.SinkOptions{}}
	var names []string
	for _, to := range a.config.SinksOf(from.Name) {
		sink, err := to.Make(a.options.Sinks)
		if err != nil {
			return nil, inSource(from.Name, fmt.Errorf("sink %q: %w", to.Name, err))
		}
		names = append(names, to.Name)
		s.sinks[to.Name] = relay.SinkOptions{
			Sink:        sink,
			Batch:       to.Batch,
			BatchBytes:  to.BatchBytes,
			Workers:     to.Workers,
			Buffer:      to.Buffer,
			BufferBytes: to.BufferBytes,
			Timeout:     to.Timeout,
			MaxAttempts: to.MaxAttempts,

			TroubleAfter: to.TroubleAfter,
			RejectAfter:  to.RejectAfter,

			Backoff: to.Backoff,
			Reopen:  to.Reopen,
		}
	}
	s.observer = a.metrics.Source(from.Name, names...)
	return s, nil
}

// open opens the source's table and makes its relay.
func (a *App) open(ctx context.Context, s *source) (err error) {
	if s.table, err = a.options.Open(ctx, s.config); err != nil {
		return inSource(s.config.Name, err)
	}
	for _, warning := range s.table.Warnings {
		a.logger.Warn("relay: "+warning, "source", s.config.Name)
	}
	a.later(func(context.Context) error { return inSource(s.config.Name, s.table.Close()) })
	s.relay, err = relay.New(s.table.Store, a.relayOptions(s))
	return inSource(s.config.Name, err)
}

func (a *App) relayOptions(s *source) relay.Options {
	return relay.Options{
		Version:      a.options.Build.Version,
		Claim:        s.config.Claim,
		Sinks:        s.sinks,
		Routes:       a.config.RoutesOf(s.config.Name),
		Lease:        s.config.Lease,
		Poll:         s.config.Poll,
		Listener:     s.table.Listener,
		Retention:    s.config.Retention,
		DrainTimeout: s.config.DrainTimeout,
		Drain:        a.options.Drain,
		Pick:         s.config.Pick,
		Topics:       s.config.Topics,
		Observer:     s.observer,
		Logger:       a.logger.With("source", s.config.Name),
	}
}

// adminGrace is how long requests to the admin server may take to finish.
const adminGrace = 2 * time.Second

// Run starts the daemon and stops it when the context ends, when every relay
// has drained, or when one has failed. When abort is closed, a stop that is
// under way doesn't wait any longer for what is being sent. Run returns nil
// after a clean stop.
func (a *App) Run(ctx context.Context, abort <-chan struct{}) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		a.logger.Info("stopping: waiting for what is under way")
	case <-a.ended:
	}
	stopping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		select {
		case <-abort:
			cancel()
		case <-stopping.Done():
		}
	}()
	err := a.Stop(stopping)
	a.logger.Info("stopped")
	return err
}

// Start opens every table, starts the admin server and lets the relays run.
// The context bounds the start alone. If Start fails, nothing is left running.
func (a *App) Start(ctx context.Context) error {
	if err := a.start(ctx); err != nil {
		return errors.Join(err, a.cleanUp(context.WithoutCancel(ctx)))
	}
	a.runRelays(context.WithoutCancel(ctx))
	return nil
}

func (a *App) start(ctx context.Context) error {
	for _, s := range a.sources {
		if err := a.open(ctx, s); err != nil {
			return err
		}
	}
	return a.startAdmin()
}

func (a *App) startAdmin() error {
	if a.config.Admin.Listen == "" {
		return nil
	}
	options := admin.Options{Address: a.config.Admin.Listen, Metrics: a.metrics.Handler(), Logger: a.logger}
	for _, s := range a.sources {
		options.Sources = append(options.Sources, admin.Source{Name: s.config.Name, Healthy: s.relay.Healthy, Status: s.table.Store.Status})
	}
	server, err := admin.Start(options)
	if err != nil {
		return err
	}
	a.admin = server
	a.logger.Info("serving admin requests", "address", server.Addr())
	a.later(func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminGrace)
		defer cancel()
		return server.Stop(limited)
	})
	return nil
}

// runRelays runs every relay, and counts every table, until Stop.
func (a *App) runRelays(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	for _, s := range a.sources {
		a.logger.Info("relaying", "source", s.config.Name, "database", s.config.Database, "table", s.config.Table)
		a.running.Go(func() { a.runRelay(ctx, s) })
	}
	watching, stopWatching := context.WithCancel(ctx)
	for _, s := range a.sources {
		a.watching.Go(func() { s.observer.Watch(watching, s.table.Store) })
	}
	go func() { a.running.Wait(); a.finish() }()
	a.later(func(ctx context.Context) error {
		stopWatching()
		return a.stopRelays(ctx, cancel)
	})
}

// runRelay ends the daemon if the relay fails: a source that nobody relays
// must not look like one that has nothing to relay.
func (a *App) runRelay(ctx context.Context, s *source) {
	s.err = inSource(s.config.Name, s.relay.Run(ctx))
	if s.err != nil {
		a.finish()
	}
}

func (a *App) finish() { a.end.Do(func() { close(a.ended) }) }

// Stop lets the relays finish what is under way, each within its drain
// timeout, or until the context ends; then everything is closed, what was
// opened last first. It returns what went wrong since the start.
func (a *App) Stop(ctx context.Context) error { return a.cleanUp(ctx) }

// stopRelays waits for the relays to drain, and aborts them when the context
// ends first.
func (a *App) stopRelays(ctx context.Context, cancel context.CancelFunc) error {
	cancel()
	stopped := make(chan struct{})
	go func() { a.running.Wait(); a.watching.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
		a.logger.Warn("aborting: what is being sent may be sent again")
		for _, s := range a.sources {
			s.relay.Abort()
		}
		<-stopped
	}
	var problems []error
	for _, s := range a.sources {
		problems = append(problems, s.err)
	}
	return errors.Join(problems...)
}

func (a *App) later(clean func(context.Context) error) { a.cleanups = append(a.cleanups, clean) }

func (a *App) cleanUp(ctx context.Context) error {
	var problems []error
	for i := len(a.cleanups) - 1; i >= 0; i-- {
		problems = append(problems, a.cleanups[i](ctx))
	}
	a.cleanups = nil
	return errors.Join(problems...)
}

// NewLogger returns a logger that writes as the configuration says.
func NewLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
