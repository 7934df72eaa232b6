// Package metrics counts what relays do, for Prometheus. It is the only
// package that imports Prometheus' client.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build says which program this is; rowrelay_build_info shows it.
type Build struct {
	Version  string
	Revision string
}

// Metrics are the metrics of one process, in a registry of their own. Its
// methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	relays   relayVectors
	tables   tableVectors
	unrouted *unrouted
}

// New returns metrics of which nothing is counted yet.
func New(build Build) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		relays:   newRelayVectors(),
		tables:   newTableVectors(),
		unrouted: newUnrouted(),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(build),
		m.unrouted,
	)
	m.registry.MustRegister(m.relays.all()...)
	m.registry.MustRegister(m.tables.all()...)
	return m
}

func buildInfo(build Build) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rowrelay_build_info",
		Help: "Which program this is; always 1.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(build.Version, build.Revision, runtime.Version()).Set(1)
	return info
}

// Registry is where everything is registered, for an application that has
// metrics of its own to add.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the metrics in Prometheus' text format, or OpenMetrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry:            m.registry,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true,
	})
}
