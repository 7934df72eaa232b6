package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
)

// Secrets and certificates in files are renewed while the daemon runs: by a person, by a secrets' manager, by
// Kubernetes, which swaps a symbolic link. They are read again once a second where something is done with them, when
// a sink is opened, and when one is refused. Databases do the same for each connection.

// secrets has the configuration as its files of secrets are now.
type secrets struct {
	logger *slog.Logger

	mu     sync.Mutex
	read   time.Time
	config config.Config
	states map[string]string // of sinks, by name
	failed string            // why the files couldn't be read, as it was logged
}

// renewEvery bounds how often the files are read.
const renewEvery = time.Second

func newSecrets(c config.Config, logger *slog.Logger) *secrets {
	s := &secrets{config: c, logger: logger}
	s.note()
	return s
}

// note keeps the sinks' states as they are now.
func (s *secrets) note() {
	s.read, s.states = time.Now(), map[string]string{}
	for _, sink := range s.config.Sinks {
		if sink.Renewable() {
			s.states[sink.Name] = sink.State()
		}
	}
}

// refresh reads the files, unless that was done less than a second ago and it needn't be now. Files that make no
// sense, as while they are being written, change nothing.
func (s *secrets) refresh(now bool) {
	if !now && time.Since(s.read) < renewEvery {
		return
	}
	c, err := s.config.Again()
	if err != nil {
		s.read = time.Now()
		if s.failed != err.Error() {
			s.failed = err.Error()
			s.logger.Error("the files of secrets can't be used: those read before stay in use", "error", err)
		}
		return
	}
	s.failed, s.config = "", c
	s.note()
}

// sink returns a sink's settings, and their state.
func (s *secrets) sink(name string, now bool) (found config.Sink, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(now)
	for _, sink := range s.config.Sinks {
		if sink.Name == name {
			found = sink
		}
	}
	return found, s.states[name]
}

// tokens are those of the admin server.
func (s *secrets) tokens() (reader, operator string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(false)
	return s.config.Admin.ReaderToken, s.config.Admin.OperatorToken
}

// renewing is a sink that is made again when its secrets or certificates have changed: it is then unavailable, so that
// the relay opens it again, between two Sends and without charging a message.
type renewing struct {
	name    string
	secrets *secrets
	make    func(config.Sink) (sinks.Sink, error)
	logger  *slog.Logger

	mu    sync.Mutex
	sink  sinks.Sink
	state string // of what it was made
}

// renewingDeduplicating is one whose destination recognises batches.
type renewingDeduplicating struct{ *renewing }

// renewable returns the sink itself if no file holds secrets or certificates of it.
func (a *App) renewable(to config.Sink, made sinks.Sink) sinks.Sink {
	if !to.Renewable() {
		return made
	}
	_, state := a.secrets.sink(to.Name, false)
	r := &renewing{
		name: to.Name, secrets: a.secrets, logger: a.logger, sink: made, state: state,
		make: func(to config.Sink) (sinks.Sink, error) { return to.Make(a.options.Sinks) },
	}
	if _, is := made.(sinks.Deduplicating); is {
		return renewingDeduplicating{r}
	}
	return r
}

func (r *renewing) current() sinks.Sink {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sink
}

func (r *renewing) changed(now bool) bool {
	_, state := r.secrets.sink(r.name, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state != state
}

// Open makes the sink again if there is something new. One that can't be made of it stays as it was.
func (r *renewing) Open(ctx context.Context) error {
	if to, state := r.secrets.sink(r.name, true); r.changed(false) {
		made, err := r.make(to)
		if err != nil {
			r.logger.Error("the sink can't be made of its renewed files: those read before stay in use", "sink", r.name, "error", err)
		} else {
			r.logger.Info("the sink's secrets or certificates were renewed", "sink", r.name)
			before := r.current()
			r.mu.Lock()
			r.sink = made
			r.mu.Unlock()
			if err := before.Close(ctx); err != nil {
				r.logger.Warn("close the sink with the secrets before", "sink", r.name, "error", err)
			}
		}
		r.mu.Lock()
		r.state = state
		r.mu.Unlock()
	}
	return r.current().Open(ctx)
}

const renewed = "its secrets or certificates were renewed: it is opened again with them"

// Send sends nothing with secrets that were renewed, and blames no message for those that were refused meanwhile.
func (r *renewing) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if r.changed(false) {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, renewed))
	}
	outcomes := r.current().Send(ctx, batch)
	for i, o := range outcomes {
		refused := (o.Result == sinks.Reject || o.Result == sinks.Retry) && (o.Reason == sinks.ReasonRefused || o.Reason == sinks.ReasonAuth)
		if refused && r.changed(true) {
			outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, fmt.Sprintf("%s (%s)", renewed, o.Reason))
		}
	}
	return outcomes
}

func (r *renewing) Close(ctx context.Context) error { return r.current().Close(ctx) }

// Order implements [sinks.Ordered].
func (r *renewing) Order() sinks.Order {
	if ordered, ok := r.current().(sinks.Ordered); ok {
		return ordered.Order()
	}
	return sinks.OrderNone
}

// Limits implements [sinks.Limited].
func (r *renewing) Limits() sinks.Limits {
	if limited, ok := r.current().(sinks.Limited); ok {
		return limited.Limits()
	}
	return sinks.Limits{}
}

// Destination implements [sinks.Destined], as relays know a sink that is none by its type.
func (r *renewing) Destination() string {
	if destined, ok := r.current().(sinks.Destined); ok {
		return destined.Destination()
	}
	return fmt.Sprintf("%T", r.current())
}

// Plan implements [sinks.Deduplicating].
func (r renewingDeduplicating) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	return r.current().(sinks.Deduplicating).Plan(ctx, batch)
}
