package app

import (
	"context"
	"errors"
	"time"

	"github.com/rowrelay/rowrelay/relay/admin"
)

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
