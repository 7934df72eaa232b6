package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
)

// Secrets and certificates may change while the daemon runs. Files are changed by hand, by a secrets manager, or by Kubernetes,
// which swaps a symbolic link; a command may print another secret when it runs again. The daemon gets the current secrets when a sink is
// opened and when a destination refuses a login, and also, at most once a second, when a sink sends or a token is checked. For each
// new connection to a database, the daemon gets the database's current login.

// secrets has the configuration with the current content of its secret files, and the current secrets of its commands.
type secrets struct {
	logger *slog.Logger

	mu     sync.Mutex
	read   time.Time
	config config.Config
	states map[string]string   // the result of [config.Sink.State] for each sink, by the sink's name
	failed string              // the error of the last read, which has been logged; empty: no error
	stale  map[string]struct{} // the current errors of commands, which have been logged
}

// renewEvery is the minimum time between a read of the files and another read for a send or for the check of a token.
const renewEvery = time.Second

func newSecrets(c config.Config, logger *slog.Logger) *secrets {
	s := &secrets{config: c, logger: logger}
	s.note()
	return s
}

// note stores the sinks' current states, and logs those errors of commands that haven't been logged yet.
func (s *secrets) note() {
	s.read, s.states = time.Now(), map[string]string{}
	for _, sink := range s.config.Sinks {
		if sink.Renewable() {
			s.states[sink.Name] = sink.State()
		}
	}
	logged := s.stale
	s.stale = map[string]struct{}{}
	for _, err := range s.config.Stale {
		s.stale[err.Error()] = struct{}{}
		if _, known := logged[err.Error()]; !known {
			s.logger.Error("a secret can't be renewed: the previous secret stays in use", "error", err)
		}
	}
}

// refresh reads the files if its argument is true, or if the last read is older than renewEvery. If a file has
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

// occasion is the reason for reading the secrets.
type occasion int

const (
	onSend    occasion = iota // read the files if the last read is older than renewEvery
	onOpen                    // read the files
	onRefusal                 // run the commands again, and read the files
)

// sink returns a sink's settings and their state. The context limits the wait for commands.
func (s *secrets) sink(ctx context.Context, name string, why occasion) (found config.Sink, state string) {
	before, _ := s.known(name)
	before.Await(ctx, why == onRefusal)
	s.mu.Lock()
	s.refresh(why != onSend)
	s.mu.Unlock()
	return s.known(name)
}

func (s *secrets) known(name string) (found config.Sink, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sink := range s.config.Sinks {
		if sink.Name == name {
			found = sink
		}
	}
	return found, s.states[name]
}

// tokens returns the current tokens of the admin server.
func (s *secrets) tokens(ctx context.Context, refused bool) (reader, operator string) {
	s.mu.Lock()
	admin := s.config.Admin
	s.mu.Unlock()
	admin.Await(ctx, refused)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(refused)
	return s.config.Admin.ReaderToken, s.config.Admin.OperatorToken
}

// renewing wraps a sink whose secrets or certificates may change. When they have changed, renewing makes a second sink with the new
// ones. If the second sink can be opened, the wrapped sink takes over its secrets and certificates; see [sinks.Renewable]. Until
// then, the wrapped sink sends with the previous ones. If the destination refuses a login, renewing gets the current secrets, and
// sends the refused messages again with them.
//
// If the wrapped sink isn't Renewable, it can't take over new secrets. Send then reports Unavailable when they have changed, so that
// the relay calls Open without charging an attempt, and Open replaces the sink.
type renewing struct {
	name    string
	secrets *secrets
	make    func(config.Sink) (sinks.Sink, error)
	logger  *slog.Logger

	running sync.WaitGroup
	turn    chan struct{} // semaphore: one renewal at a time
	ended   context.Context
	end     context.CancelFunc // called by Close

	mu     sync.Mutex
	sink   sinks.Sink
	state  string    // the state ([config.Sink.State]) of the settings and files that the sink uses
	failed string    // the newest state if no sink could be opened with it; otherwise empty
	next   time.Time // no renewal in the background starts before this time
	pause  time.Duration
}

// A renewal that fails is tried again after firstTry, and then at intervals that double until they reach lastTry. A renewal
// takes at most renewalTime.
const renewalTime = 30 * time.Second

// renewingDeduplicating wraps a sink that implements [sinks.Deduplicating].
type renewingDeduplicating struct{ *renewing }

// renewable wraps a sink whose secrets or certificates may change. It returns other sinks unchanged.
func (a *App) renewable(to config.Sink, made sinks.Sink) sinks.Sink {
	if !to.Renewable() {
		return made
	}
	_, state := a.secrets.known(to.Name)
	r := &renewing{
		name: to.Name, secrets: a.secrets, logger: a.logger, sink: made, state: state, turn: make(chan struct{}, 1),
		make: func(to config.Sink) (sinks.Sink, error) { return to.Make(a.options.Sinks) },
	}
	r.ended, r.end = context.WithCancel(context.Background())
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

func (r *renewing) inUse() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// changed reports whether the sink's current secrets or certificates differ from those in use.
func (r *renewing) changed(ctx context.Context, why occasion) bool {
	_, state := r.secrets.sink(ctx, r.name, why)
	return r.inUse() != state
}

// inPlace reports whether the wrapped sink can be renewed while it sends.
func (r *renewing) inPlace() bool {
	_, can := r.current().(sinks.Renewable)
	return can
}

// Open opens the sink with the current secrets. If the sink can't be made with them, Open uses the previous secrets. If the
// sink can be made with them but not opened, Open tries the previous secrets, but only if the sink is Renewable.
func (r *renewing) Open(ctx context.Context) error {
	if !r.inPlace() {
		r.replace(ctx)
		return r.current().Open(ctx)
	}
	var tried error // the error of opening a sink with the current secrets
	_, state := r.secrets.sink(ctx, r.name, onOpen)
	if state != r.inUse() {
		if tried = r.renew(ctx); tried == nil {
			return nil // the other sink was opened with the secrets that are now in use
		}
	}
	err := r.current().Open(ctx)
	if err != nil && sinks.Unopened(err).Reason == sinks.ReasonAuth {
		if _, latest := r.secrets.sink(ctx, r.name, onRefusal); latest != state {
			if tried = r.renew(ctx); tried == nil {
				return nil
			}
		}
	}
	if err != nil && tried != nil {
		return tried
	}
	return err
}

// replace replaces the sink by a new sink with the current secrets and certificates.
func (r *renewing) replace(ctx context.Context) {
	to, state := r.secrets.sink(ctx, r.name, onOpen)
	before := r.current()
	if state == r.inUse() {
		return
	}
	made, err := r.make(to)
	r.mu.Lock()
	r.state = state
	if err == nil {
		r.sink = made
	}
	r.mu.Unlock()
	if err != nil {
		r.logger.Error("the sink can't be made from its renewed secrets and certificates: the previous secrets and certificates stay in use", "sink", r.name, "error", err)
		return
	}
	r.logger.Info("the sink's secrets or certificates were renewed", "sink", r.name)
	if err := before.Close(ctx); err != nil {
		r.logger.Warn("closing the sink with the previous secrets failed", "sink", r.name, "error", err)
	}
}

// renew makes and opens another sink with the current secrets and certificates, and then gives them to the wrapped sink. It returns
// nil if the wrapped sink uses the current secrets afterwards.
func (r *renewing) renew(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	to, state := r.secrets.known(r.name)
	if state == r.inUse() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, renewalTime)
	defer cancel()
	defer context.AfterFunc(r.ended, cancel)()
	other, err := r.make(to)
	if err == nil {
		if err = testOpen(limited, other); err == nil {
			r.current().(sinks.Renewable).Renew(other)
		}
		if closeErr := other.Close(limited); closeErr != nil {
			r.logger.Warn("closing a sink that was made to test renewed secrets failed", "sink", r.name, "error", closeErr)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.logger.Info("the sink's secrets or certificates were renewed", "sink", r.name)
		r.state, r.failed, r.pause = state, "", 0
		return nil
	}
	if r.failed != state && limited.Err() == nil {
		r.failed = state
		r.logger.Warn("the sink can't be opened with its renewed secrets or certificates: the previous ones stay in use", "sink", r.name, "error", err)
	}
	r.pause = min(max(firstTry, 2*r.pause), lastTry)
	r.next = time.Now().Add(r.pause)
	return err
}

// testOpen opens a sink, and calls the sink's method Reach if it has one. Some sinks don't connect in Open, but have a method Reach,
// which connects and sends nothing.
func testOpen(ctx context.Context, sink sinks.Sink) error {
	err := sink.Open(ctx)
	if reachable, is := sink.(interface {
		Reach(context.Context) (bool, error)
	}); is && err == nil {
		_, err = reachable.Reach(ctx)
	}
	return err
}

// renewInBackground starts a renewal, unless one is running or the last one failed a short time ago.
func (r *renewing) renewInBackground() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.turn) > 0 || time.Now().Before(r.next) || r.ended.Err() != nil {
		return
	}
	r.running.Go(func() { _ = r.renew(r.ended) }) // renew has logged the error
}

const renewed = "the sink's secrets or certificates were renewed: the relay opens the sink again with them"

// Send starts a renewal if the secrets or certificates have changed. After a refused login it waits for the current secrets.
// If they differ from the refused ones, it sends the refused messages again.
func (r *renewing) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if r.changed(ctx, onSend) {
		if !r.inPlace() {
			return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, renewed))
		}
		r.renewInBackground()
	}
	used := r.inUse()
	outcomes := r.current().Send(ctx, batch)
	if !slices.ContainsFunc(outcomes, isRefused) || !r.hasRenewed(ctx, used, outcomes) {
		return outcomes
	}
	_, exact := r.current().(sinks.Deduplicating)
	if !r.inPlace() {
		for i, o := range outcomes {
			if isRefused(o) {
				outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, fmt.Sprintf("%s (%s)", renewed, o.Reason))
			}
		}
		return outcomes
	}
	var again []sinks.Message
	places := toRepeat(batch, outcomes, exact)
	for _, i := range places {
		again = append(again, batch[i])
	}
	if len(again) > 0 {
		for n, o := range r.current().Send(ctx, again) {
			outcomes[places[n]] = o
		}
	}
	return outcomes
}

// hasRenewed reports whether the sink's secrets now differ from the secrets with which the refused messages were sent. If a login was
// refused, it runs the commands again.
func (r *renewing) hasRenewed(ctx context.Context, used string, outcomes []sinks.Outcome) bool {
	// A refusal by one of a sink's many destinations is no reason to run the commands, because that destination may refuse every login.
	why := onOpen
	if slices.ContainsFunc(outcomes, func(o sinks.Outcome) bool { return o.Reason == sinks.ReasonAuth && o.Destination == "" }) {
		why = onRefusal
	}
	changed := r.changed(ctx, why)
	if !r.inPlace() {
		return changed
	}
	if changed && r.renew(ctx) != nil {
		return false
	}
	return r.inUse() != used && ctx.Err() == nil
}

// isRefused reports whether a message may have failed because of a secret.
func isRefused(o sinks.Outcome) bool {
	switch o.Result {
	case sinks.Reject, sinks.Retry:
		return o.Reason == sinks.ReasonRefused || o.Reason == sinks.ReasonAuth
	case sinks.Unavailable:
		return o.Reason == sinks.ReasonAuth
	}
	return false
}

// toRepeat returns the positions of the messages to send again: the refused messages, and the messages that were not sent because
// others were refused. A message is left out if an earlier message of its key failed for another reason. If `exact` is true,
// the sink is Deduplicating, and only messages whose outcome is unknown ([sinks.IsOpen]) may be sent again.
func toRepeat(batch []sinks.Message, outcomes []sinks.Outcome, exact bool) (places []int) {
	failed := map[string]bool{} // keys
	for i, o := range outcomes {
		unsent := o.Result == sinks.Unsent && o.RetryAfter == 0
		key := batch[i].Key
		switch {
		case o.Result == sinks.Delivered:
		case key != "" && failed[key]:
		case exact && !sinks.IsOpen(o), !isRefused(o) && !unsent:
			failed[key] = true
		default:
			places = append(places, i)
		}
	}
	return places
}

// Close ends a renewal that is in progress, and closes the sink.
func (r *renewing) Close(ctx context.Context) error {
	r.end()
	r.running.Wait()
	return r.current().Close(ctx)
}

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

// Destination implements [sinks.Destined]. If the wrapped sink doesn't implement it, Destination returns the name of
// its Go type, as relays do.
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

// Plan implements [sinks.Deduplicating]. After a refused login it waits for the current secrets, as Send does.
func (r renewingDeduplicating) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	used := r.inUse()
	refs, outcomes := r.current().(sinks.Deduplicating).Plan(ctx, batch)
	if slices.ContainsFunc(outcomes, isRefused) && r.inPlace() && r.hasRenewed(ctx, used, outcomes) {
		return r.current().(sinks.Deduplicating).Plan(ctx, batch)
	}
	return refs, outcomes
}
