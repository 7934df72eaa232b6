// Package app is the daemon: a relay for each source of a configuration, their
// metrics, and the admin server, started and stopped together. It is what
// `rowrelay run` runs.
//
// In comes a configuration that package config has read, and a function that
// opens a source's table; what goes out are log lines, metrics and the error of
// [App.Run]. A daemon runs as long as each of its relays does: one that fails
// ends the others, as a source that nobody relays must not look like one that
// has nothing to relay. A source whose table can't be opened at the start is red in
// /readyz, and tried again while the others relay (reload.go).
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
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Store is what the daemon needs of a source's table. sqlstore has it.
type Store interface {
	storage.Store
	storage.Operator
}

// Table is an open source.
type Table struct {
	Store    Store
	Listener relay.Listener // wakes the relay; nil where the relay polls
	Warnings []string       // what doesn't fit; is logged
	Close    func() error   // lets go of the database
}

// PageTable is what the admin page works with; see [admin.Source].
type PageTable struct {
	Operator, Reads storage.Operator
	Close           func() error
}

// Options are what the daemon can't read from a configuration.
type Options struct {
	// Open opens a source's table. Required.
	Open func(context.Context, config.Source) (Table, error)

	// OpenPage opens a source's table for the admin page, over connections of its own. Nil: the page uses the relay's.
	OpenPage func(context.Context, config.Source) (PageTable, error)

	// Sinks are the kinds of sinks that there are. Required.
	Sinks *sinks.Registry

	// Build says which program this is.
	Build metrics.Build

	// Tracer follows messages in all relays. Defaults to none.
	Tracer relay.Tracer

	// Drain ends the daemon as soon as no source has a message left that could
	// be delivered now. It doesn't start unless every table can be opened.
	Drain bool

	// Load reads the configuration again whenever Reload has something. Run then goes on by that one,
	// or by the one before, if anything is wrong with it.
	Load   func() (config.Config, error)
	Reload <-chan os.Signal

	// Logger receives what an operator should know; never a payload or a
	// secret. Defaults to slog.Default.
	Logger *slog.Logger
}

// NewLogger returns a logger that writes as the configuration says.
func NewLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// adminGrace is how long requests to the admin server may take to finish.
const adminGrace = 2 * time.Second

// App is a daemon. It is started and stopped once.
type App struct {
	config  config.Config
	options Options
	logger  *slog.Logger
	secrets *secrets

	sources    []*source
	state      *admin.State     // what pages remember; of all daemons that follow each other
	metrics    *metrics.Metrics // nil where the configuration has no admin server
	follows    bool             // the metrics are those of the daemon before
	admin      *admin.Server    // likewise
	cancel     func()           // stops relays and counts; nil until they run
	running    sync.WaitGroup
	ended      context.Context // over when every relay has ended, or one has failed
	end        func()
	handedOver bool         // the state belongs to the daemon that follows
	back       chan *source // those whose tables can be opened now, and couldn't at the start
}

// source is a table with its relay.
type source struct {
	config   config.Source
	sinks    map[string]relay.SinkOptions
	table    Table
	page     PageTable
	inherits *PageTable   // that of the daemon before, where jobs continue; nil: there is none
	relay    *relay.Relay // nil while the table can't be opened
	down     error        // why it couldn't be opened at the start
	err      error        // of the relay's Run; read after it has ended

	// What the admin server shows; nil without one. The watch tells the metrics, too.
	metrics *metrics.Source
	watch   *admin.Watch
}

// New makes a daemon from a configuration that package config has read. It
// opens nothing; the error tells of all sinks that can't be made.
func New(c config.Config, options Options) (*App, error) { return newApp(c, options, nil) }

// newApp is New of a daemon that counts on where another one ends, if that has metrics.
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

// newSource makes a source's own sinks: each relay opens and closes its own.
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

// Addr is the address of the admin server, or nothing without one.
func (a *App) Addr() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.Addr()
}

// Run starts the daemon and stops it when the context ends, when every relay
// has drained, or when one has failed. When abort is closed, a stop that has
// begun doesn't wait any longer for what is being sent. Run returns nil after a
// clean stop. A configuration that is loaded meanwhile has a daemon of its own, which takes over.
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
			a.logger.Error("stopping to go on by the new configuration", "error", err)
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

// Start opens every table, starts the admin server and lets the relays run.
// The context bounds the start alone. If Start fails, nothing is left running.
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if a.follows { // the daemon before has ended
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

// openTables opens those that aren't open yet, one of them at least. Those that mayBeDown are left for
// later if they can't be opened.
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
		a.logger.Error("the source can't be opened: it is tried again, and the others are relayed meanwhile", "source", s.config.Name, "error", s.down)
	}
	return nil
}

// startAdmin starts the admin server, where there is to be one.
func (a *App) startAdmin() (err error) {
	c := a.config.Admin
	if c.Listen == "" || a.admin != nil {
		return nil
	}
	options := admin.Options{
		Address: c.Listen, Metrics: a.metrics.Handler(), Logger: a.logger, ReaderToken: c.ReaderToken, OperatorToken: c.OperatorToken, Tokens: a.secrets.tokens,
		Hosts: c.Hosts, State: a.state, LoginRefused: a.metrics.LoginRefused, HidePayloads: c.Payloads == config.HidePayloads, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile,
	}
	for _, s := range a.sources {
		shown := admin.Source{Name: s.config.Name, Watch: s.watch}
		if down := s.down; down != nil {
			shown.Healthy = func() error { return fmt.Errorf("its table couldn't be opened, which is tried again: %w", down) }
			shown.Status = func(context.Context) (storage.Status, error) { return storage.Status{}, shown.Healthy() }
		} else {
			shown.StandbyReason = s.relay.StandbyReason
			shown.Healthy, shown.Status, shown.Operator = s.relay.Healthy, s.watch.Counting(s.page.Reads.Status), s.page.Operator
			shown.Reads = s.page.Reads
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
		s.page.Close = nil // as long as it is the other daemon's
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

// StandbyReasonBeside returns why the relay of a configuration's source would stand by if it started now beside the living
// relays; see [relay.Relay.StandbyReasonBeside]. The store is the table's. Nothing is opened or started.
func StandbyReasonBeside(c config.Config, from config.Source, kinds *sinks.Registry, store Store, living []storage.Member) (string, error) {
	c.Admin = config.Admin{}
	a := &App{config: c, options: Options{Sinks: kinds}, logger: slog.New(slog.DiscardHandler)}
	a.secrets = newSecrets(c, a.logger)
	s, err := a.newSource(from)
	if err != nil {
		return "", err
	}
	s.table.Store = store
	beside, err := a.newRelay(s)
	if err != nil {
		return "", err
	}
	return beside.StandbyReasonBeside(living), nil
}

// runRelays runs every relay, and counts every table for the admin server, until Stop.
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

// Stop lets the relays finish what is being sent, each within its drain
// timeout, or until the context ends; then everything is closed, what was
// opened last first. It returns what went wrong since the start.
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

// stopRelays waits for the relays to drain, and aborts them when the context
// ends first.
func (a *App) stopRelays(ctx context.Context) {
	a.cancel()
	stopped := make(chan struct{})
	go func() { a.running.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
		a.logger.Warn("aborting: what is being sent may be sent again")
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
