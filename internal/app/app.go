// Package app is the daemon that `rowrelay run` runs. The daemon starts and stops one relay for each source of a configuration,
// the relays' metrics, and the admin server.
//
// Its input is a configuration from package config, and a function that opens a source's table. Its output is log lines,
// metrics and the error of [App.Run]. If one relay fails, the daemon stops the others and returns the error; otherwise the
// failed source would look as if it had no messages. If a source's table can't be opened at the start, /readyz reports the
// problem, and the daemon tries again while it relays the other sources (reload.go).
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Store is a source's table. Package sqlstore implements it.
type Store interface {
	storage.Store
	storage.Operator
}

// Table is a source's table that has been opened.
type Table struct {
	Store    Store
	Listener relay.Listener // wakes the relay; nil if the relay polls
	Warnings []string       // warnings to log at the start
	Close    func() error   // closes the database
}

// PageTable is a source's table as the admin page uses it; see [admin.Source].
type PageTable struct {
	Operator, Reads storage.Operator
	Write           func(context.Context, outbox.Message) error // may be nil
	Close           func() error
}

// Options are the parameters of a daemon that aren't in its configuration.
type Options struct {
	// Open opens a source's table. Required.
	Open func(context.Context, config.Source) (Table, error)

	// OpenPage opens a source's table for the admin page, with a separate connection pool. If it is nil, the page uses
	// the relay's pool.
	OpenPage func(context.Context, config.Source) (PageTable, error)

	// Sinks has the available kinds of sinks. Required.
	Sinks *sinks.Registry

	// Build has the program's version and revision.
	Build metrics.Build

	// Tracer traces messages in all relays. Defaults to none.
	Tracer relay.Tracer

	// Drain makes the daemon end as soon as no source has a message that is due. With Drain, the daemon doesn't start unless
	// every table can be opened.
	Drain bool

	// Load reads the configuration again. Run calls Load for each value that Run receives from Reload. Then Run switches to the
	// new configuration, or keeps the previous one if the new one has an error.
	Load   func() (config.Config, error)
	Reload <-chan os.Signal

	// Logger receives log lines for operators, which never contain a payload or a secret. Defaults to slog.Default.
	Logger *slog.Logger
}

// NewLogger returns a logger with the level and format of the configuration.
func NewLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// adminGrace is the time that requests to the admin server have to finish when the server stops.
const adminGrace = 2 * time.Second

// App is a daemon. It can be started and stopped once.
type App struct {
	config  config.Config
	options Options
	logger  *slog.Logger
	secrets *secrets

	sources    []*source
	state      *admin.State     // the admin page's jobs and logins; after a reload, the next daemon takes them over
	metrics    *metrics.Metrics // nil if the configuration has no admin server
	follows    bool             // whether a previous daemon has counted in these metrics
	admin      *admin.Server    // nil if the configuration has no admin server
	cancel     func()           // stops the relays and the counting; nil until they run
	running    sync.WaitGroup
	ended      context.Context // cancelled when every relay has ended, or one has failed
	end        func()
	handedOver bool         // another daemon uses the same state, so Stop doesn't close it
	back       chan *source // receives each source whose table couldn't be opened at the start, once the table can be opened
}

// source is a table with its relay.
type source struct {
	config   config.Source
	sinks    map[string]relay.SinkOptions
	table    Table
	page     PageTable
	inherits *PageTable   // the previous daemon's PageTable, which this daemon takes over because the page's jobs use it; nil: none
	relay    *relay.Relay // nil while the table can't be opened
	down     error        // the error of opening the table at the start; nil if the table was opened
	err      error        // the error of the relay's Run; read it after the relay has ended

	// The fields metrics and watch feed the admin server; without an admin server both are nil. The watch passes the relay's events
	// to the metrics.
	metrics *metrics.Source
	watch   *admin.Watch
}

// New makes a daemon from a configuration that package config has read. New opens nothing. Its error lists all sinks that
// can't be made.
func New(c config.Config, options Options) (*App, error) { return newApp(c, options, nil) }

// newApp makes a daemon like New. If `counted` isn't nil, it has the previous daemon's metrics, and the new daemon
// continues to count in them.
func newApp(c config.Config, options Options, counted *metrics.Metrics) (*App, error) {
	if len(c.Sources) == 0 || options.Open == nil || options.Sinks == nil {
		return nil, errors.New("make the daemon: sources, Open and Sinks are required")
	}
	a := &App{config: c, options: options, logger: cmp.Or(options.Logger, slog.Default()), back: make(chan *source), state: admin.NewState()}
	a.secrets = newSecrets(c, a.logger)
	if c.Admin.Listen != "" {
		a.follows = counted != nil
		if a.metrics = counted; counted == nil {
			a.metrics = metrics.New(options.Build)
		}
	}
	a.ended, a.end = context.WithCancel(context.Background())
	var problems []error
	for _, from := range c.Sources {
		s, err := a.newSource(from)
		problems = append(problems, inSource(from.Name, err))
		a.sources = append(a.sources, s)
	}
	return a, errors.Join(problems...)
}

// newSource makes a source with separate sinks, because each relay opens and closes its sinks.
func (a *App) newSource(from config.Source) (*source, error) {
	s := &source{config: from, sinks: map[string]relay.SinkOptions{}}
	var names []string
	for _, to := range a.config.SinksOf(from.Name) {
		made, err := to.Make(a.options.Sinks)
		if err != nil {
			return nil, fmt.Errorf("sink %q: %w", to.Name, err)
		}
		names = append(names, to.Name)
		to.Sink = a.renewable(to, made)
		s.sinks[to.Name] = to.SinkOptions
	}
	if a.config.Admin.Listen != "" {
		if s.metrics = a.metrics.Following(from.Name); !a.follows {
			a.metrics.Source(from.Name, names...)
		}
		s.watch = admin.NewWatch(s.metrics, names...)
	}
	return s, nil
}

// Addr returns the address of the admin server, or "" without one.
func (a *App) Addr() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.Addr()
}

// Run starts the daemon, and stops it when the context ends, when every relay has drained, or when one has failed. A stop
// waits for messages that are being sent, until the channel `abort` is closed. Run returns nil after a clean stop. When Run
// has loaded a new configuration, it makes a new daemon for this configuration, which takes over from the previous daemon.
func (a *App) Run(ctx context.Context, abort <-chan struct{}) error {
	if err := a.Start(ctx); err != nil {
		return err
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
	for {
		next := a.successor(ctx)
		if next != nil {
			a.handOver(next)
		}
		err := a.Stop(stopping)
		if next == nil {
			a.logger.Info("stopped")
			return err
		}
		if err != nil {
			a.logger.Error("errors while stopping for the new configuration", "error", err)
		}
		for _, s := range next.sources {
			if was := a.sourceOf(s.config.Name); was != nil && s.watch != nil {
				s.watch.Continue(was.watch)
			}
		}
		if err := next.Start(ctx); err != nil {
			return err
		}
		a = next
	}
}

// Start opens the tables, and starts the admin server and the relays. The context limits only the start. If Start fails,
// nothing keeps running.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if a.follows { // the previous daemon has ended
		a.metrics.Restart()
		for _, s := range a.sources {
			a.metrics.Source(s.config.Name, slices.Sorted(maps.Keys(s.sinks))...)
		}
	}
	if err := a.openTables(ctx, func(*source) bool { return !a.options.Drain }); err != nil {
		return err
	}
	if err := a.startAdmin(); err != nil {
		return err
	}
	a.runRelays(context.WithoutCancel(ctx))
	return nil
}

// openTables opens the tables that aren't open yet, and makes their relays. If a table can't be opened, but mayBeDown returns true
// for its source, the daemon tries again later. openTables fails if any other table can't be opened, if no table at all can be
// opened, or if a relay can't be made.
func (a *App) openTables(ctx context.Context, mayBeDown func(*source) bool) error {
	var problems []error
	for _, s := range a.sources {
		if s.relay != nil || s.down != nil {
			continue
		}
		err := a.open(ctx, s)
		if err == nil {
			continue
		}
		problems = append(problems, inSource(s.config.Name, err))
		if opened := s.table.Close != nil; opened || !mayBeDown(s) || len(problems) == len(a.sources) {
			return errors.Join(problems...)
		}
		s.down = err
		a.logger.Error("the source can't be opened: trying again while the other sources are relayed", "source", s.config.Name, "error", s.down)
	}
	return nil
}

// startAdmin starts the admin server, if the configuration has one.
func (a *App) startAdmin() (err error) {
	c := a.config.Admin
	if c.Listen == "" || a.admin != nil {
		return nil
	}
	options := admin.Options{
		Address: c.Listen, Metrics: a.metrics.Handler(), Logger: a.logger, ReaderToken: c.ReaderToken, OperatorToken: c.OperatorToken, Tokens: a.secrets.tokens,
		TraceURL: c.TraceURL, UserHeader: c.UserHeader.Name, TrustedProxies: c.UserHeader.TrustedProxies,
		Hosts: c.Hosts, State: a.state, LoginRefused: a.metrics.LoginRefused, HidePayloads: c.Payloads == config.HidePayloads, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
	}
	for _, s := range a.sources {
		shown := admin.Source{Name: s.config.Name, Watch: s.watch}
		if down := s.down; down != nil {
			shown.Healthy = func() error { return fmt.Errorf("its table couldn't be opened (trying again): %w", down) }
			shown.Status = func(context.Context) (storage.Status, error) { return storage.Status{}, shown.Healthy() }
		} else {
			shown.StandbyReason = s.relay.StandbyReason
			shown.Healthy, shown.Status, shown.Operator = s.relay.Healthy, s.watch.Counting(s.page.Reads.Status), s.page.Operator
			shown.Reads, shown.Write = s.page.Reads, s.page.Write
		}
		options.Sources = append(options.Sources, shown)
	}
	if a.admin, err = admin.Start(options); err != nil {
		return err
	}
	a.logger.Info("serving admin requests", "address", a.Addr())
	return nil
}

// open opens the source's table and makes its relay.
func (a *App) open(ctx context.Context, s *source) (err error) {
	if s.table, err = a.options.Open(ctx, s.config); err != nil {
		return err
	}
	s.page = PageTable{Operator: s.table.Store, Reads: s.table.Store}
	if s.inherits != nil {
		s.page = *s.inherits
		s.page.Close = nil // the previous daemon closes the page's table, unless handOver gives it to this daemon
	} else if a.config.Admin.Listen != "" && a.options.OpenPage != nil {
		if s.page, err = a.options.OpenPage(ctx, s.config); err != nil {
			return err
		}
	}
	for _, warning := range s.table.Warnings {
		a.logger.Warn("relay: "+warning, "source", s.config.Name)
	}
	s.relay, err = a.newRelay(s)
	return err
}

// newRelay makes the relay of a source whose table is open.
func (a *App) newRelay(s *source) (*relay.Relay, error) {
	options := relay.Options{
		Name:         s.config.RelayName,
		Version:      a.options.Build.Version,
		Claim:        s.config.Claim,
		Join:         s.config.Join,
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
		Tracer:       a.options.Tracer,
		Logger:       a.logger.With("source", s.config.Name),
	}
	if s.watch != nil {
		options.Observer = s.watch
	}
	return relay.New(s.table.Store, options)
}

// StandbyReasonAmong returns the reason why a source's relay would stand by if it started now, while the given relays
// (living) are alive; see [relay.Relay.StandbyReasonAmong]. store is the source's table. Nothing is opened or started.
func StandbyReasonAmong(c config.Config, from config.Source, kinds *sinks.Registry, store Store, living []storage.Member) (string, error) {
	c.Admin = config.Admin{}
	a := &App{config: c, options: Options{Sinks: kinds}, logger: slog.New(slog.DiscardHandler)}
	a.secrets = newSecrets(c, a.logger)
	s, err := a.newSource(from)
	if err != nil {
		return "", err
	}
	s.table.Store = store
	candidate, err := a.newRelay(s)
	if err != nil {
		return "", err
	}
	return candidate.StandbyReasonAmong(living), nil
}

// runRelays starts the relays of the open tables, and keeps trying to open the other tables. For the admin server it also starts
// to count the messages of the open tables. Stop stops the relays, the counting and the attempts to open tables.
func (a *App) runRelays(ctx context.Context) {
	ctx, a.cancel = context.WithCancel(ctx)
	var relays sync.WaitGroup
	for _, s := range a.sources {
		if s.down != nil {
			a.running.Go(func() { a.tryAgain(ctx, s) })
			continue
		}
		a.logger.Info("relaying", "source", s.config.Name, "database", s.config.Database, "table", s.config.Table)
		relays.Go(func() {
			if s.err = inSource(s.config.Name, s.relay.Run(ctx)); s.err != nil {
				a.end()
			}
		})
		if s.watch != nil {
			a.running.Go(func() { s.metrics.Watch(ctx, s.watch.Counting(s.table.Store.Status)) })
		}
	}
	a.running.Go(func() { relays.Wait(); a.end() })
}

// Stop stops the relays. Each relay first finishes the messages that it is sending, until its drain timeout has passed or the
// context ends. Then Stop closes everything, in reverse order of opening. It returns the errors of the relays and of closing.
func (a *App) Stop(ctx context.Context) error {
	var problems []error
	if a.cancel != nil {
		a.stopRelays(ctx)
		for _, s := range a.sources {
			problems = append(problems, s.err)
		}
	}
	if !a.handedOver {
		a.state.Close()
	}
	if a.admin != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminGrace)
		defer cancel()
		problems = append(problems, a.admin.Stop(limited))
	}
	for _, s := range slices.Backward(a.sources) {
		if s.page.Close != nil {
			problems = append(problems, inSource(s.config.Name, s.page.Close()))
		}
		if s.table.Close != nil {
			problems = append(problems, inSource(s.config.Name, s.table.Close()))
		}
	}
	return errors.Join(problems...)
}

// stopRelays stops the relays and waits until they have ended. When the context ends, it aborts the relays.
func (a *App) stopRelays(ctx context.Context) {
	a.cancel()
	stopped := make(chan struct{})
	go func() { a.running.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
		a.logger.Warn("aborting: messages that are being sent may be sent again")
		for _, s := range a.sources {
			if s.relay != nil {
				s.relay.Abort()
			}
		}
		<-stopped
	}
}

func inSource(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("source %q: %w", name, err)
}
