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

// Files of secrets and certificates may change while the daemon runs: by hand, by a secrets manager, or by
// Kubernetes, which swaps a symbolic link. The daemon reads them again when a sink is opened, when a destination
// refuses messages of a sink, and at most once a second when a sink sends or a token is checked. For each new
// connection to a database, the daemon reads the database's login again.

// secrets has the configuration with the current content of its secret files.
type secrets struct {
	logger *slog.Logger

	mu     sync.Mutex
	read   time.Time
	config config.Config
	states map[string]string // each sink's state, by the sink's name
	failed string            // the last read's error, as it was logged
}

// renewEvery is the minimum time between two reads of the files that are caused by a send or by the check of a
// token.
const renewEvery = time.Second

func newSecrets(c config.Config, logger *slog.Logger) *secrets {
	s := &secrets{config: c, logger: logger}
	s.note()
	return s
}

// note stores the sinks' current states.
func (s *secrets) note() {
	s.read, s.states = time.Now(), map[string]string{}
	for _, sink := range s.config.Sinks {
		if sink.Renewable() {
			s.states[sink.Name] = sink.State()
		}
	}
}

// refresh reads the files if the argument now is true or the last read is older than renewEvery. If a file has
// an error, the previous content stays in use, because the file may be only partly written.
func (s *secrets) refresh(now bool) {
	if !now && time.Since(s.read) < renewEvery {
		return
	}
	c, err := s.config.Again()
	if err != nil {
		s.read = time.Now()
		if s.failed != err.Error() {
			s.failed = err.Error()
			s.logger.Error("the secret files can't be used: the previous secrets stay in use", "error", err)
		}
		return
	}
	s.failed, s.config = "", c
	s.note()
}

// sink returns a sink's settings and their state. If the argument now is true, it reads the files first.
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

// tokens returns the current tokens of the admin server.
func (s *secrets) tokens() (reader, operator string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(false)
	return s.config.Admin.ReaderToken, s.config.Admin.OperatorToken
}

// renewing wraps a sink, and makes it again when its secrets or certificates have changed. Its Send then reports
// Unavailable, so that the relay opens the sink again without charging an attempt.
type renewing struct {
	name    string
	secrets *secrets
	make    func(config.Sink) (sinks.Sink, error)
	logger  *slog.Logger

	mu    sync.Mutex
	sink  sinks.Sink
	state string // the state of the settings and files from which the field sink was made
}

// renewingDeduplicating wraps a sink that implements [sinks.Deduplicating].
type renewingDeduplicating struct{ *renewing }

// renewable wraps a sink whose secrets or certificates are in files. It returns other sinks unchanged.
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

// Open makes the sink again if its files have changed, and opens it. If it can't be made, Open opens the previous
// sink.
func (r *renewing) Open(ctx context.Context) error {
	if to, state := r.secrets.sink(r.name, true); r.changed(false) {
		made, err := r.make(to)
		if err != nil {
			r.logger.Error("the sink can't be made from its renewed files: the previous secrets and certificates stay in use", "sink", r.name, "error", err)
		} else {
			r.logger.Info("the sink's secrets or certificates were renewed", "sink", r.name)
			before := r.current()
			r.mu.Lock()
			r.sink = made
			r.mu.Unlock()
			if err := before.Close(ctx); err != nil {
				r.logger.Warn("closing the sink with the previous secrets failed", "sink", r.name, "error", err)
			}
		}
		r.mu.Lock()
		r.state = state
		r.mu.Unlock()
	}
	return r.current().Open(ctx)
}

const renewed = "the sink's secrets or certificates were renewed: it is opened again with them"

// Send reports Unavailable if the sink's files have changed. It checks the files before it sends, so that it doesn't
// use old secrets. It checks them again after the destination has refused messages, so that no message is charged
// because of an old secret.
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

// Destination implements [sinks.Destined]. If the wrapped sink isn't Destined, it returns the sink's type, as relays
// do.
func (r *renewing) Destination() string {
	if destined, ok := r.current().(sinks.Destined); ok {
		return destined.Destination()
	}
	return fmt.Sprintf("%T", r.current())
}

// Address implements [sinks.Addressing]. If the wrapped sink isn't Addressing, it returns no address.
func (r *renewing) Address(topic string) sinks.Address {
	if sink, ok := r.current().(sinks.Addressing); ok {
		return sink.Address(topic)
	}
	return sinks.Address{}
}

// Plan implements [sinks.Deduplicating].
func (r renewingDeduplicating) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	return r.current().(sinks.Deduplicating).Plan(ctx, batch)
}
