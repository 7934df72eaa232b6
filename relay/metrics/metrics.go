// Package metrics provides Prometheus metrics of relays. It is the only package
// that imports Prometheus's client.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build identifies the program. The metric rowrelay_build_info shows it.
type Build struct {
	Version  string
	Revision string
}

// Metrics holds the metrics of one process. It is a prometheus.Collector: register it in the program's registry, or serve its
// Handler if the program has no registry. Each relay counts in a [Source] of its own. The methods of Metrics may be called
// concurrently.
type Metrics struct {
	registry *prometheus.Registry // has only the metrics of rowrelay

	// Relays update these metrics.
	delivered, outcomes, retried, parked  *prometheus.CounterVec
	expired, deadLetters                  *prometheus.CounterVec
	leasesLost, fenced, missing, failures *prometheus.CounterVec
	lag, send                             *prometheus.HistogramVec
	database                              *prometheus.HistogramVec
	lanesHeld, waits, sinkUp, lastPoll    *prometheus.GaugeVec
	inFlight, buffered                    *prometheus.GaugeVec
	unrouted                              *unrouted
	refusedLogins                         prometheus.Counter

	// Watch updates these metrics from periodic counts of the tables.
	messages, oldest, oldestRetry, held, oldestHeld, controls, relays *prometheus.GaugeVec
}

var _ prometheus.Collector = (*Metrics)(nil)

// LoginRefused counts a request with a wrong token.
func (m *Metrics) LoginRefused() { m.refusedLogins.Inc() }

// lagBuckets range from the fastest delivery to a backlog of a day.
var lagBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}

// sendBuckets range from the fastest send to the longest sensible time-out.
var sendBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// New returns metrics without a source.
func New(build Build) *Metrics {
	registry := prometheus.NewRegistry()
	register := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: "rowrelay_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register.NewGaugeVec(prometheus.GaugeOpts{Name: "rowrelay_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return register.NewHistogramVec(prometheus.HistogramOpts{Name: "rowrelay_" + name, Help: help, Buckets: buckets}, labels)
	}
	m := &Metrics{
		registry: registry,

		refusedLogins: register.NewCounter(prometheus.CounterOpts{Name: "rowrelay_admin_refused_logins_total", Help: "Requests that the admin server rejected because of a wrong token."}),

		delivered:   counter("delivered_total", "Messages that a sink has accepted.", "source", "sink"),
		outcomes:    counter("outcomes_total", "Outcomes that sinks reported, one for each attempt of a message.", "source", "sink", "result", "reason"),
		retried:     counter("retried_total", "Messages that were scheduled for another attempt.", "source"),
		parked:      counter("parked_total", "Messages that were parked as errors. Only an operator can requeue them.", "source", "sink", "reason"),
		expired:     counter("expired_total", "Messages that had expired and were parked or discarded.", "source", "sink", "on_expire"),
		deadLetters: counter("dead_letters_total", "Dead letters that were written when their messages were parked.", "source", "sink"),
		leasesLost:  counter("leases_lost_total", "Lane leases that ended without being released.", "source"),
		fenced:      counter("fenced_writes_total", "Settlements that changed nothing because the lease or claim belonged to another relay.", "source"),
		missing:     counter("stale_writes_total", "Settlements that changed nothing because the row had been settled or removed.", "source"),
		failures:    counter("failures_total", "Failures of the relay by stage, such as read or settle.", "source", "stage"),
		lag:         histogram("lag_seconds", "Time from writing a message to delivering it.", lagBuckets, "source", "sink"),
		send:        histogram("send_seconds", "Time that a sink needed for a batch.", sendBuckets, "source", "sink"),
		database:    histogram("database_seconds", "Duration of a database call: lease, controls, read, scan, claim, settle, or purge.", sendBuckets, "source", "call"),
		lanesHeld:   gauge("lanes_held", "Lanes that this relay holds.", "source"),
		waits:       gauge("relay_standby", "1 while this relay waits because relays with other sinks or routes are alive; otherwise 0.", "source"),
		sinkUp:      gauge("sink_up", "1 if the sink is available, 0 if it is unavailable. The relay notices an unavailable sink when it opens the sink or sends messages.", "source", "sink"),
		inFlight:    gauge("in_flight_messages", "Messages that are being sent.", "source", "sink"),
		buffered:    gauge("buffered_messages", "Messages in memory: waiting, being sent, or not yet settled.", "source", "sink"),
		lastPoll:    gauge("last_poll_timestamp_seconds", "Time of the last successful poll. Also updated while the relay is healthy but needs no poll, because it has no lanes or no buffer space. Initially the time when the relay started.", "source"),
		unrouted:    newUnrouted(),

		messages:    gauge("messages", "Messages in the table, by state.", "source", "state"),
		oldest:      gauge("oldest_pending_seconds", "Age of the oldest message that could be delivered now; 0 if none exists.", "source"),
		oldestRetry: gauge("oldest_retry_seconds", "Age of the oldest message that waits for another attempt; 0 if none exists.", "source"),
		held:        gauge("held_keys", "Keys that parked messages hold until an operator acts.", "source"),
		oldestHeld:  gauge("oldest_held_key_seconds", "Time for which the longest-held key has been held; 0 if none is held.", "source"),
		controls:    gauge("active_controls", "Controls in force: pauses of sinks, topics, keys and relays, and rate limits of sinks.", "source", "kind"),
		relays:      gauge("relays_alive", "Relays of the table that are alive, in all processes.", "source"),
	}
	registry.MustRegister(m.unrouted)
	gauge("build_info", "Version of the program, in the labels; the value is always 1.", "version", "revision", "goversion").
		WithLabelValues(build.Version, build.Revision, runtime.Version()).Set(1)
	return m
}

// Restart deletes the gauges of all sources. Call it when relays with another configuration start. [Metrics.Source] creates
// the gauges of a source again. Counters are kept, including counters of sources and sinks that no longer exist.
func (m *Metrics) Restart() {
	for _, gauge := range []*prometheus.GaugeVec{
		m.lanesHeld, m.waits, m.sinkUp, m.lastPoll, m.inFlight, m.buffered, m.messages, m.oldest, m.oldestRetry, m.held, m.oldestHeld, m.controls, m.relays,
	} {
		gauge.Reset()
	}
	m.unrouted.forget()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) { m.registry.Describe(descriptions) }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(values chan<- prometheus.Metric) { m.registry.Collect(values) }

// Handler serves these metrics, and those of Go and of the process, in Prometheus' text format or OpenMetrics.
func (m *Metrics) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry:            registry,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true,
	})
}
