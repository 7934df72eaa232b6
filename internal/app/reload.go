package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
)

// This file switches to another configuration: after a SIGHUP, when a source that was down at the start can be opened, or
// when a file or a command names another database. The running daemon first makes a new daemon: it makes the new sinks, opens
// the new tables and, if the admin server's address has changed, listens at the new address. An error in these steps leaves the
// running daemon as it is. Then the running daemon stops, and the new daemon's relays start.

// successor waits until another daemon must take over, and returns that daemon. It returns nil when this daemon must stop
// without a successor.
func (a *App) successor(ctx context.Context) *App {
	wasDown := func(s *source) bool {
		return slices.ContainsFunc(a.sources, func(was *source) bool { return was.config.Name == s.config.Name && was.down != nil })
	}
	var look <-chan time.Time // ticks when the daemon must read the database URLs again; nil if no URL or password comes from a file or a command
	if slices.ContainsFunc(a.sources, func(s *source) bool { return s.config.Database.Renewable() }) {
		ticker := time.NewTicker(movedEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		var next *App
		select {
		case <-ctx.Done():
			a.logger.Info("stopping") // if the stop takes long, each relay logs what it waits for
			return nil
		case <-a.ended.Done():
			return nil
		case <-a.options.Reload:
			c, err := a.options.Load()
			if err == nil {
				next, err = a.prepare(ctx, c, wasDown)
			}
			if err != nil {
				a.logger.Error("the configuration wasn't loaded: the previous one stays in use", "error", err)
				continue
			}
			a.logger.Info("switching to the new configuration")
		case <-look:
			if !slices.ContainsFunc(a.sources, func(s *source) bool { return s.config.Database.Moved() }) {
				continue
			}
			c, err := a.config.Again()
			if err == nil {
				next, err = a.prepare(ctx, c, wasDown)
			}
			if err != nil {
				a.logger.Error("the settings name another database, which can't be used: trying again", "error", err)
				continue
			}
			a.logger.Info("switching to the databases that the settings name now")
		case back := <-a.back:
			var err error
			next, err = a.prepare(ctx, a.config, func(s *source) bool { return s.config.Name != back.config.Name && wasDown(s) })
			if err != nil {
				a.logger.Error("the source can be opened now, but the daemon could not restart with it: trying again", "source", back.config.Name, "error", err)
				continue
			}
			a.logger.Info("the source can be opened now: restarting with it", "source", back.config.Name)
		}
		return next
	}
}

// movedEvery is the interval at which the daemon reads databases' URLs from their files and commands, to notice when a
// URL names another database. A new login needs no restart, because each new connection uses the current login.
const movedEvery = 5 * time.Second

// prepare makes a daemon for a configuration, without starting it. It fails if a table for which mayBeDown returns false
// can't be opened. It takes at most loadTime, and ends early if this daemon's relays end.
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
		next.handedOver = true // the state belongs to this daemon, so next.Stop must not close it
		if stopErr := next.Stop(ctx); stopErr != nil {
			a.logger.Warn("errors while closing what the new configuration had opened", "error", stopErr)
		}
		return nil, err
	}
	return next, nil
}

// handOver gives the page's state to the next daemon, together with the page's connections, because the page's jobs use them. It
// stops the jobs of each source that the next daemon doesn't have, or for which the next daemon has another table.
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

// sameTable reports whether two sources have the same table.
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

// loadTime bounds the time to open everything that a new configuration needs.
const loadTime = time.Minute

// The daemon tries again to open a table after firstTry, and then at intervals that double until they reach lastTry.
const (
	firstTry = time.Second
	lastTry  = 30 * time.Second
)

// tryAgain tries repeatedly to open a source's table. After each success it sends the source to the channel a.back. It returns
// when the context ends, because another daemon takes over or this daemon stops.
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
