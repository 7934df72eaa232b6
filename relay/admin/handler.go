package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// Handler returns the server's pages, for an application with a server of its
// own:
//
//	/metrics   Prometheus' text format
//	/healthz   200 as long as the process serves
//	/readyz    200 if every relay works; 503 and the reason if one doesn't
//	/status    what the tables hold, as JSON
func Handler(options Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", options.Metrics)
	mux.HandleFunc("GET /healthz", healthz)
	mux.Handle("GET /readyz", ready(options.Sources))
	mux.Handle("GET /status", newStatus(options.Sources, options.Logger))
	mux.HandleFunc("GET /{$}", index)
	return http.NewCrossOriginProtection().Handler(guarded(mux))
}

// guarded sets headers that keep a browser from making anything of an answer
// but text.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, request)
	})
}

func index(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "rowrelay\n\n/metrics\n/healthz\n/readyz\n/status\n")
}

func healthz(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprint(w, text) // a client that is gone needs no answer
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // as above
}

// wantsJSON says whether a client asks for JSON rather than text.
func wantsJSON(request *http.Request) bool {
	for accepted := range strings.SplitSeq(request.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == "application/json" {
			return true
		}
	}
	return false
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready   bool              `json:"ready"`
	Sources map[string]string `json:"sources"` // "ok", or what is wrong
}

// ready is red as soon as one relay doesn't work: its loop is dead, or its
// database is gone.
func ready(sources []Source) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		answer, lines := readiness{Ready: true, Sources: map[string]string{}}, []string{}
		for _, source := range sources {
			state := "ok"
			if err := source.Healthy(); err != nil {
				answer.Ready, state = false, err.Error()
			}
			answer.Sources[source.Name] = state
			lines = append(lines, source.Name+": "+state+"\n")
		}
		code := http.StatusOK
		if !answer.Ready {
			code = http.StatusServiceUnavailable
		}
		if wantsJSON(request) {
			writeJSON(w, code, answer)
			return
		}
		writeText(w, code, strings.Join(lines, ""))
	})
}

// Counting a table may be slow: it is given so long, and done once at a time
// however many ask.
const countTimeout = 10 * time.Second

// status is the page that counts.
type status struct {
	sources []Source
	logger  *slog.Logger
	turn    chan struct{}
}

func newStatus(sources []Source, logger *slog.Logger) *status {
	return &status{sources: sources, logger: logger, turn: make(chan struct{}, 1)}
}

// sourceStatus is a source in the answer of /status.
type sourceStatus struct {
	Source string `json:"source"`
	Failed string `json:"failed,omitempty"` // why it could not be counted
	*Report
}

// ServeHTTP answers with every source, and 503 if one couldn't be counted.
func (s *status) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), countTimeout)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		writeText(w, http.StatusServiceUnavailable, "the tables are being counted already: try again\n")
		return
	}
	answers, code := s.countAll(ctx)
	writeJSON(w, code, map[string]any{"sources": answers})
}

func (s *status) countAll(ctx context.Context) (answers []sourceStatus, code int) {
	code = http.StatusOK
	for _, source := range s.sources {
		counted, err := source.Status(ctx)
		if err != nil {
			code = http.StatusServiceUnavailable
			s.logger.Warn("counting a table failed", "source", source.Name, "error", err)
			answers = append(answers, sourceStatus{Source: source.Name, Failed: err.Error()})
			continue
		}
		report := NewReport(counted)
		answers = append(answers, sourceStatus{Source: source.Name, Report: &report})
	}
	return answers, code
}

// Report is a relay.Status in the form that is shown as JSON, by /status and
// by the command line.
type Report struct {
	Claim                relay.Claim       `json:"claim"` // empty before the first relay
	Pending              int64             `json:"pending"`
	Claimed              int64             `json:"claimed"`
	Scheduled            int64             `json:"scheduled"`
	Retry                int64             `json:"retry"`
	Error                int64             `json:"error"`
	Done                 int64             `json:"done"`
	OldestPendingSeconds float64           `json:"oldest_pending_seconds"`
	Lanes                int               `json:"lanes"` // leased now
	Relays               []relay.RelayInfo `json:"relays"`

	// PendingTopics counts the first 1,000 pending messages by topic.
	PendingTopics map[string]int64 `json:"pending_topics"`
}

// NewReport returns a status as it is shown. Lists are empty rather than null.
func NewReport(status relay.Status) Report {
	report := Report{
		Claim:                status.Claim,
		Pending:              status.Counts[relay.StatePending],
		Claimed:              status.Counts[relay.StateClaimed],
		Scheduled:            status.Counts[relay.StateScheduled],
		Retry:                status.Counts[relay.StateRetry],
		Error:                status.Counts[relay.StateError],
		Done:                 status.Counts[relay.StateDone],
		OldestPendingSeconds: status.OldestPending.Seconds(),
		Lanes:                status.LanesLeased,
		Relays:               append([]relay.RelayInfo{}, status.Relays...),
		PendingTopics:        map[string]int64{},
	}
	for topic, count := range status.Topics {
		report.PendingTopics[topic] = count
	}
	return report
}
