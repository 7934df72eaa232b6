package app

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/metrics"
)

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
