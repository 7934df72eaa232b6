package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Pages are what the server serves, for an application with a server of its own:
//
//	/          the page: what is wrong, charts, messages, and what can be done
//	/api/…     what the page asks for, as JSON
//	/metrics   Prometheus' text format
//	/healthz   200 as long as the process serves
//	/readyz    200 if every relay works; 503 and the reason if one doesn't
//	/status    what the tables hold, as JSON
//
// Nobody needs a token for /healthz, /readyz and the page without its content. Whether
// others do, says Options.ReaderToken.
type Pages struct {
	http.Handler
	api *api
}

// Handler returns the pages. Close ends what they work at.
func Handler(options Options) *Pages {
	mux := http.NewServeMux()
	a := newAPI(options)
	mux.Handle("GET /metrics", a.guard.need(reader, options.Metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.Handle("GET /readyz", ready(options.Sources, a.guard))
	mux.Handle("GET /status", a.guard.need(reader, a.status(options.Sources)))
	a.routes(mux)
	for path, asset := range assets {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", asset.kind)
			_, _ = w.Write(asset.content)
		})
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(anotherOrigin))
	return &Pages{api: a, Handler: protection.Handler(a.ownHost(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		// A browser must not make anything of an answer but what it is, nor show the page
		// within another; and the page runs and loads nothing but its own files.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
		mux.ServeHTTP(w, request)
	})))}
}

// Close ends the jobs that were begun, and waits for them, unless the pages have a State of their owner's.
func (p *Pages) Close() {
	if p.api.options.State == nil {
		p.api.state.Close()
	}
}

// anotherOrigin answers a browser whose page has, as it says, not come from this server. A proxy that doesn't hand on the name
// by which it was asked makes it look so, too: browsers say more only over HTTPS and on localhost.
func anotherOrigin(w http.ResponseWriter, request *http.Request) {
	writeProblem(w, http.StatusForbidden, fmt.Sprintf("the request comes from a page of %.100q, and was sent to %.100q. If a proxy stands in between, let it hand on the Host header, or use HTTPS", request.Header.Get("Origin"), request.Host))
}

// ready is the page /readyz. It is red as soon as one relay doesn't work: its
// loop is dead, or its database is gone. One that waits for relays of another setup to end works:
// were it red, a rolling deployment that brings another setup would never end these. Only readers get the reasons: those of
// databases name users, hosts and ports.
func ready(sources []Source, guard *guard) http.HandlerFunc {
	type readiness struct {
		Ready   bool              `json:"ready"`
		Sources map[string]string `json:"sources"` // "ok", perhaps with what it waits for, or what is wrong
	}
	return func(w http.ResponseWriter, request *http.Request) {
		answer, lines, code := readiness{Ready: true, Sources: map[string]string{}}, "", http.StatusOK
		told := guard.roleOf(request) >= reader
		for _, source := range sources {
			state := "ok"
			if err := source.Healthy(); err != nil {
				answer.Ready, state, code = false, "it doesn't work; readers are told why", http.StatusServiceUnavailable
				if told {
					state = err.Error()
				}
			} else if source.StandbyReason != nil && source.StandbyReason() != "" {
				state = "ok, and waits"
				if told {
					state += ": " + source.StandbyReason()
				}
			}
			answer.Sources[source.Name] = state
			lines += source.Name + ": " + state + "\n"
		}
		if wantsJSON(request) {
			writeJSON(w, code, answer)
			return
		}
		writeText(w, code, lines)
	}
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

// Counting a table may be slow: it is given so long, and done once at a time
// however many ask.
const countTimeout = 10 * time.Second

// status is the page /status. It answers with every source, and 503 if one
// couldn't be counted.
func (a *api) status(sources []Source) http.HandlerFunc {
	type sourceStatus struct {
		Source string `json:"source"`
		Failed string `json:"failed,omitempty"` // why it could not be counted
		*Report
	}
	turn := make(chan struct{}, 1)
	return func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), countTimeout)
		defer cancel()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			writeText(w, http.StatusServiceUnavailable, "the tables are being counted already: try again\n")
			return
		}
		var answers []sourceStatus
		code := http.StatusOK
		for _, source := range sources {
			counted, err := source.Status(ctx)
			if err != nil {
				code = http.StatusServiceUnavailable
				a.options.Logger.Warn("counting a table failed", "source", source.Name, "error", err)
				answers = append(answers, sourceStatus{Source: source.Name, Failed: err.Error()})
				continue
			}
			counted.Controls = a.hideControls(counted.Controls)
			report := NewReport(counted)
			answers = append(answers, sourceStatus{Source: source.Name, Report: &report})
		}
		writeJSON(w, code, map[string]any{"sources": answers})
	}
}

// Report is a storage.Status in the form that is shown as JSON, by /status and
// by the command line.
type Report struct {
	Claim                storage.Claim       `json:"claim"` // empty before the first relay
	Pending              int64               `json:"pending"`
	Claimed              int64               `json:"claimed"`
	Scheduled            int64               `json:"scheduled"`
	Retry                int64               `json:"retry"`
	Error                int64               `json:"error"`
	Done                 int64               `json:"done"`
	OldestPendingSeconds float64             `json:"oldest_pending_seconds"`
	OldestRetrySeconds   float64             `json:"oldest_retry_seconds"` // since it was written
	HeldKeys             int64               `json:"held_keys"`            // that wait with a parked message
	OldestHeldSeconds    float64             `json:"oldest_held_key_seconds"`
	Lanes                int                 `json:"lanes"` // leased now
	Relays               []storage.RelayInfo `json:"relays"`
	Controls             []storage.Control   `json:"controls"` // in force: pauses and limits

	// PendingTopics counts the first 1,000 pending messages by topic.
	PendingTopics map[string]int64 `json:"pending_topics"`

	// There were too many to count of these states: the counts of those that are estimated
	// are so, and of the others there are at least as many as were counted.
	Estimated []storage.State `json:"estimated,omitempty"`
	AtLeast   []storage.State `json:"at_least,omitempty"`

	// Absent names what could not be had in time. Of the counts, it is 0 here.
	Absent []storage.Gauge `json:"absent,omitempty"`
}

// NewReport returns a status as it is shown. Lists are empty rather than null.
func NewReport(status storage.Status) Report {
	report := Report{
		Claim:                status.Claim,
		Pending:              status.Counts[storage.StatePending],
		Claimed:              status.Counts[storage.StateClaimed],
		Scheduled:            status.Counts[storage.StateScheduled],
		Retry:                status.Counts[storage.StateRetry],
		Error:                status.Counts[storage.StateError],
		Done:                 status.Counts[storage.StateDone],
		OldestPendingSeconds: status.OldestPending.Seconds(),
		OldestRetrySeconds:   status.OldestRetry.Seconds(),
		HeldKeys:             status.HeldKeys,
		OldestHeldSeconds:    status.OldestHeld.Seconds(),
		Lanes:                status.LanesLeased,
		Relays:               append([]storage.RelayInfo{}, status.Relays...),
		Controls:             append([]storage.Control{}, status.Controls...),
		PendingTopics:        map[string]int64{},
		Estimated:            append([]storage.State{}, status.Estimated...),
		AtLeast:              append([]storage.State{}, status.AtLeast...),
		Absent:               append([]storage.Gauge{}, status.Absent...),
	}
	maps.Copy(report.PendingTopics, status.Topics)
	return report
}

// writeText writes an answer. A client that is gone needs none, so an error of
// the connection is no matter here and in writeJSON.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// writeJSON answers 500 for a value that JSON doesn't have, and not a success without a body.
func writeJSON(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		writeText(w, http.StatusInternalServerError, "write the answer as JSON: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
