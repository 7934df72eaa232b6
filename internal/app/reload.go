package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
)

// Going on by another configuration. In comes a signal, or the news that a source that was down at the
// start can be opened; what goes out is the daemon that takes over, ready: its sinks are made, its
// tables open, and its admin server listens, if at another address than before. Whatever is
// wrong with it is found before anything that runs is stopped. Between the two no relay works for as long
// as the first one's stop takes.

// successor waits for the daemon that takes over; nil at the end.
func (a *App) successor(ctx context.Context) *App {
	wasDown := func(s *source) bool {
		return slices.ContainsFunc(a.sources, func(was *source) bool { return was.config.Name == s.config.Name && was.down != nil })
	}
	var look <-chan time.Time // at files with the databases' URLs
	if slices.ContainsFunc(a.sources, func(s *source) bool { return s.config.Database.InFile() }) {
		ticker := time.NewTicker(movedEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		var next *App
		select {
		case <-ctx.Done():
			a.logger.Info("stopping") // each relay says what it waits for if that takes longer
			return nil
		case <-a.ended.Done():
			return nil
		case <-a.options.Reload:
			c, err := a.options.Load()
			if err == nil {
				next, err = a.prepare(ctx, c, wasDown)
			}
			if err != nil {
				a.logger.Error("the configuration wasn't loaded: everything goes on by the one before", "error", err)
				continue
			}
			a.logger.Info("going on by the configuration as it is now")
		case <-look:
			if !slices.ContainsFunc(a.sources, func(s *source) bool { return s.config.Database.Moved() }) {
				continue
			}
			c, err := a.config.Again()
			if err == nil {
				next, err = a.prepare(ctx, c, wasDown)
			}
			if err != nil {
				a.logger.Error("a file with a database's URL names another database, which can't be used: that is tried again", "error", err)
				continue
			}
			a.logger.Info("going on by the databases that the files name now")
		case back := <-a.back:
			var err error
			next, err = a.prepare(ctx, a.config, func(s *source) bool { return s.config.Name != back.config.Name && wasDown(s) })
			if err != nil {
				a.logger.Error("the source could be opened, but not be taken in: that is tried again", "source", back.config.Name, "error", err)
				continue
			}
			a.logger.Info("going on by all sources that can be opened now", "source", back.config.Name)
		}
		return next
	}
}

// movedEvery is how often files with databases' URLs are read; a login that they have anew is taken up without.
const movedEvery = 5 * time.Second

// prepare makes the daemon of a configuration, all but its start. A table that can't be opened is
// a reason not to take it, unless it mayBeDown. It takes at most loadTime, and no longer than this daemon's relays run.
func (a *App) prepare(ctx context.Context, c config.Config, mayBeDown func(*source) bool) (*App, error) {
	limited, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	defer context.AfterFunc(a.ended, cancel)()
	next, err := newApp(c, a.options, a.metrics)
	if err != nil {
		return nil, err
	}
	next.state = a.state
	for _, s := range next.sources {
		if was := a.sourceOf(s.config.Name); was != nil && was.page.Close != nil && c.Admin.Listen != "" && sameTable(was.config, s.config) {
			s.inherits = &was.page
		}
	}
	if err = next.openTables(limited, mayBeDown); err == nil && c.Admin.TLS.CertFile != "" {
		if _, err = tls.LoadX509KeyPair(c.Admin.TLS.CertFile, c.Admin.TLS.KeyFile); err != nil {
			err = fmt.Errorf("read the admin server's certificate: %w", err)
		}
	}
	if err == nil && c.Admin.Listen != a.config.Admin.Listen {
		err = next.startAdmin()
	}
	if err != nil {
		next.handedOver = true // the state is this daemon's
		if stopErr := next.Stop(ctx); stopErr != nil {
			a.logger.Warn("letting go of what the new configuration has opened", "error", stopErr)
		}
		return nil, err
	}
	return next, nil
}

// handOver gives what outlives a new configuration to the daemon that follows: the state of the pages, and the page's
// connections, over which jobs run. Jobs of a source that has another table now, or is gone, are stopped.
func (a *App) handOver(next *App) {
	a.handedOver = true
	for _, s := range a.sources {
		if to := next.sourceOf(s.config.Name); to != nil && to.inherits == &s.page {
			to.page.Close, s.page.Close = s.page.Close, nil
			continue
		}
		a.state.StopJobs(s.config.Name)
	}
}

// sameTable says whether two sources are one table.
func sameTable(a, b config.Source) bool {
	return a.Database.Secret() == b.Database.Secret() && a.Table == b.Table
}

func (a *App) sourceOf(name string) *source {
	for _, s := range a.sources {
		if s.config.Name == name {
			return s
		}
	}
	return nil
}

// loadTime is how long everything that a new configuration opens may take.
const loadTime = time.Minute

// How long it takes until a table that couldn't be opened is tried again: twice as long each time.
const (
	firstTry = time.Second
	lastTry  = 30 * time.Second
)

// tryAgain tries to open a source's table, tells when it can be opened, and goes on with it until the
// daemon that has it takes over.
func (a *App) tryAgain(ctx context.Context, s *source) {
	for pause := firstTry; ; pause = min(2*pause, lastTry) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		limited, cancel := context.WithTimeout(ctx, loadTime)
		table, err := a.options.Open(limited, s.config)
		cancel()
		if err == nil {
			err = table.Close()
		}
		if err == nil {
			select {
			case a.back <- s:
			case <-ctx.Done():
			}
			continue
		}
		a.logger.Warn("the source still can't be opened", "source", s.config.Name, "error", err)
	}
}
