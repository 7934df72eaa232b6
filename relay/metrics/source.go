package metrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Source counts the events of one relay, and labels them with the name of the relay's source (its table). It is a relay.Observer.
type Source struct {
	name    string
	metrics *Metrics
}

var _ relay.Observer = (*Source)(nil)

// Source returns the observer of the source with this name. All metrics of the source have the name in their label `source`. Set
// the observer as Options.Observer of the source's relay. All counters begin at 0, so that the first failure shows as an
// increase. The counters of a sink exist after the relay's first attempt to open the sink, or immediately if the sink is in
// sinkNames. A sink in sinkNames counts as up until the relay finds it unavailable. The time of the last poll is set to now, so that
// an alert notices a relay that never polls.
func (m *Metrics) Source(name string, sinkNames ...string) *Source {
	s := &Source{name: name, metrics: m}
	for _, sink := range sinkNames {
		s.SinkUp(sink)
	}
	for _, stage := range stages {
		m.failures.WithLabelValues(name, stage)
	}
	m.retried.WithLabelValues(name)
	m.leasesLost.WithLabelValues(name)
	m.fenced.WithLabelValues(name)
	m.missing.WithLabelValues(name)
	m.lanesHeld.WithLabelValues(name)
	m.waits.WithLabelValues(name)
	m.lastPoll.WithLabelValues(name).SetToCurrentTime()
	m.unrouted.source(name)
	return s
}

// Following returns the observer of a source whose relay replaces a relay with another configuration. It leaves the gauges as
// they are, since the other relay may still set them. When the other relay has ended, call [Metrics.Restart] and, for each
// source, [Metrics.Source].
func (m *Metrics) Following(name string) *Source { return &Source{name: name, metrics: m} }

// begin makes the metrics of a sink, if they don't exist yet.
func (s *Source) begin(sink string) {
	m := s.metrics
	m.delivered.WithLabelValues(s.name, sink)
	m.outcomes.WithLabelValues(s.name, sink, sinks.Delivered.String(), "")
	m.expired.WithLabelValues(s.name, sink, string(relay.ParkExpired))
	m.expired.WithLabelValues(s.name, sink, string(relay.DiscardExpired))
	m.deadLetters.WithLabelValues(s.name, sink)
	m.lag.WithLabelValues(s.name, sink)
	m.send.WithLabelValues(s.name, sink)
	m.inFlight.WithLabelValues(s.name, sink)
	m.buffered.WithLabelValues(s.name, sink)
	for _, reason := range slices.Concat(rejectReasons, []sinks.Reason{expired}) {
		m.parked.WithLabelValues(s.name, sink, string(reason))
	}
}

// stages are the stages at which a relay can fail. Their counters begin at 0.
var stages = []string{"lease", "controls", "read", "reclaim", "sweep", "found_late", "journal", "settle", "settle_refused", "purge", "listen", "drain", "stuck", "status"}

// other is the label value of unknown results and reasons, such as those that a plug-in has invented, because a label must have
// few values.
const other = "other"

var results = []sinks.Result{sinks.Retry, sinks.Delivered, sinks.Reject, sinks.Unavailable, sinks.Unsent}

var reasons = []sinks.Reason{
	sinks.ReasonNone, sinks.ReasonUnknown, sinks.ReasonTimeout, sinks.ReasonServerError, sinks.ReasonHandlerError,
	sinks.ReasonPanic, sinks.ReasonBusy, sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonRefused,
	sinks.ReasonUnroutable, sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonConfig,
	sinks.ReasonCancelled, sinks.ReasonBlocked, sinks.ReasonExhausted, sinks.ReasonCrash,
}

// rejectReasons are the reasons for which messages are parked. Their counters begin at 0. Expired messages are also counted
// separately.
var rejectReasons = []sinks.Reason{sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonRefused, sinks.ReasonUnroutable, sinks.ReasonExhausted, sinks.ReasonCrash}

const expired sinks.Reason = "expired"

// Sent counts the outcomes of a batch.
func (s *Source) Sent(sink string, took time.Duration, outcomes map[relay.OutcomeKind]int) {
	s.metrics.send.WithLabelValues(s.name, sink).Observe(took.Seconds())
	for outcome, count := range outcomes {
		result := other
		if slices.Contains(results, outcome.Result) {
			result = outcome.Result.String()
		}
		s.metrics.outcomes.WithLabelValues(s.name, sink, result, label(outcome.Reason)).Add(float64(count))
	}
}

// label returns the reason, or "other" for an unknown one.
func label(reason sinks.Reason) string {
	if !slices.Contains(reasons, reason) {
		return other
	}
	return string(reason)
}

// Delivered counts a message and its lag. The topic is not a label, because an application may have any number of topics.
func (s *Source) Delivered(sink, _ string, lag time.Duration) {
	s.metrics.delivered.WithLabelValues(s.name, sink).Inc()
	s.metrics.lag.WithLabelValues(s.name, sink).Observe(max(0, lag.Seconds()))
}

// Expired counts an expired message.
func (s *Source) Expired(sink string, become relay.OnExpire) {
	s.metrics.expired.WithLabelValues(s.name, sink, string(become)).Inc()
	if become == relay.ParkExpired {
		s.metrics.parked.WithLabelValues(s.name, sink, string(expired)).Inc()
	}
}

// DeadLettered counts a dead letter.
func (s *Source) DeadLettered(sink string) {
	s.metrics.deadLetters.WithLabelValues(s.name, sink).Inc()
}

// Parked counts a parked message.
func (s *Source) Parked(sink string, reason sinks.Reason) {
	s.metrics.parked.WithLabelValues(s.name, sink, label(reason)).Inc()
}

// InMemory shows how many messages of a sink are in flight and in memory.
func (s *Source) InMemory(sink string, inFlight, buffered int) {
	s.metrics.inFlight.WithLabelValues(s.name, sink).Set(float64(inFlight))
	s.metrics.buffered.WithLabelValues(s.name, sink).Set(float64(buffered))
}

// Called counts a call of the database and its duration.
func (s *Source) Called(call string, took time.Duration) {
	s.metrics.database.WithLabelValues(s.name, call).Observe(took.Seconds())
}

// Settled counts the retries, and the settlements that changed nothing.
func (s *Source) Settled(counts storage.Settled, states map[storage.State]int) {
	s.metrics.fenced.WithLabelValues(s.name).Add(float64(counts.Fenced))
	s.metrics.missing.WithLabelValues(s.name).Add(float64(counts.Missing))
	s.metrics.retried.WithLabelValues(s.name).Add(float64(states[storage.StateRetry]))
}

// Standby shows whether the relay stands by because relays with another configuration are active.
func (s *Source) Standby(why string) {
	waits := 0.0
	if why != "" {
		waits = 1
	}
	s.metrics.waits.WithLabelValues(s.name).Set(waits)
}

// LanesHeld shows the number of held lanes, and counts the lost ones.
func (s *Source) LanesHeld(held, lost int) {
	s.metrics.lanesHeld.WithLabelValues(s.name).Set(float64(held))
	s.metrics.leasesLost.WithLabelValues(s.name).Add(float64(lost))
}

// SinkDown shows that a sink is unavailable.
func (s *Source) SinkDown(sink string, _ sinks.Reason, _ string) {
	s.begin(sink)
	s.metrics.sinkUp.WithLabelValues(s.name, sink).Set(0)
}

// SinkUp shows that a sink accepts messages.
func (s *Source) SinkUp(sink string) {
	s.begin(sink)
	s.metrics.sinkUp.WithLabelValues(s.name, sink).Set(1)
}

// Unrouted shows that messages of a topic wait without a route.
func (s *Source) Unrouted(topic string) { s.metrics.unrouted.met(s.name, topic) }

// Failed counts a failure of a stage.
func (s *Source) Failed(stage string, _ error) {
	s.metrics.failures.WithLabelValues(s.name, stage).Inc()
}

// Polled records the time of a poll.
func (s *Source) Polled(int) {
	s.metrics.lastPoll.WithLabelValues(s.name).SetToCurrentTime()
}

// The messages of a table are counted at intervals of countEvery, with the time-out countTimeout. Counting a large table may
// be slow, so no scrape waits for it. A database server may continue a count after the time-out, so the pause after a count is
// at least countRest times the count's duration.
const (
	countEvery   = 15 * time.Second
	countTimeout = 10 * time.Second
	countRest    = 20
)

// Watch counts the messages of a table immediately and then every 15 s, or less often if counting takes long, until the context
// ends. The argument count is the Status method of a store. If this method fails, Watch removes the gauges, because their values
// are outdated, and counts a failure of the stage "status". If only a part of the status takes too long, Watch removes only that
// part's gauges, and also counts a failure.
func (s *Source) Watch(ctx context.Context, count func(context.Context) (storage.Status, error)) {
	for {
		began := time.Now()
		s.count(ctx, count)
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(countEvery-took, countRest*took)):
		}
	}
}

// errAbsent is the failure that Watch counts if a part of the status took too long to count.
var errAbsent = errors.New("a part of the status could not be counted in time")

func (s *Source) count(ctx context.Context, count func(context.Context) (storage.Status, error)) {
	limited, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	status, err := count(limited)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.Failed("status", err)
		for _, vector := range []*prometheus.GaugeVec{s.metrics.messages, s.metrics.oldest, s.metrics.oldestRetry, s.metrics.held, s.metrics.oldestHeld, s.metrics.controls, s.metrics.relays} {
			vector.DeletePartialMatch(prometheus.Labels{"source": s.name})
		}
	default:
		if len(status.Absent) > 0 {
			s.Failed("status", errAbsent)
		}
		s.show(status)
	}
}

// show sets the gauges that were counted, and removes the others.
func (s *Source) show(status storage.Status) {
	m := s.metrics
	set := func(gauge storage.Gauge, vector *prometheus.GaugeVec, value float64) {
		if !status.Has(gauge) {
			vector.DeletePartialMatch(prometheus.Labels{"source": s.name})
			return
		}
		vector.WithLabelValues(s.name).Set(value)
	}
	if !status.Has(storage.GaugeCounts) {
		m.messages.DeletePartialMatch(prometheus.Labels{"source": s.name})
	}
	for state, count := range status.Counts {
		m.messages.WithLabelValues(s.name, string(state)).Set(float64(count))
	}
	set(storage.GaugeOldestPending, m.oldest, status.OldestPending.Seconds())
	set(storage.GaugeOldestRetry, m.oldestRetry, status.OldestRetry.Seconds())
	set(storage.GaugeHeldKeys, m.held, float64(status.HeldKeys))
	set(storage.GaugeHeldKeys, m.oldestHeld, status.OldestHeld.Seconds())
	inForce := map[storage.ControlKind]int{storage.PauseSink: 0, storage.PauseTopic: 0, storage.PauseKey: 0, storage.PauseRelay: 0, storage.LimitSink: 0}
	for _, control := range status.Controls {
		inForce[control.Kind]++
	}
	for kind, count := range inForce {
		m.controls.WithLabelValues(s.name, string(kind)).Set(float64(count))
	}
	alive := 0
	for _, info := range status.Relays {
		if info.Alive {
			alive++
		}
	}
	set(storage.GaugeRelays, m.relays, float64(alive))
}
