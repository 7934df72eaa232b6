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

// Pages is the handler of the admin server, for an application with a server of its own:
//
//	/          the page: problems, charts, messages, and actions
//	/api/…     the page's API, in JSON; /api/openapi.yaml describes it
//	/metrics   metrics in Prometheus' text format
//	/healthz   200 as long as the process serves requests
//	/readyz    200 if every relay works, otherwise 503; readers also get the reasons
//	/status    counts of the tables, in JSON
//
// /healthz, /readyz, logins and the page's own files need no token. All other requests need
// Options.ReaderToken, if it is set.
type Pages struct {
	http.Handler
	api *api
}

// Handler returns the pages. Call Close to stop their jobs.
func Handler(options Options) *Pages {
	mux := http.NewServeMux()
	a := newAPI(options)
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
		// Browsers must not guess the type of a response or show the page in a frame, and
		// the page may only load the server's own files.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
		mux.ServeHTTP(w, request)
	})))}
}

// Close stops the running jobs and waits for them. If Options.State is set, it does nothing: the owner of the State closes it.
func (p *Pages) Close() {
	if p.api.options.State == nil {
		p.api.state.Close()
	}
}

// anotherOrigin refuses a request from a page of another origin. Behind a proxy that doesn't forward the Host header, the
// server's own page looks like one of another origin, unless the browser sends the header Sec-Fetch-Site. Browsers send
// this header only over HTTPS and to localhost.
func anotherOrigin(w http.ResponseWriter, request *http.Request) {
	writeProblem(w, http.StatusForbidden, fmt.Sprintf("the request comes from a page of %.100q, but was sent to %.100q. Behind a proxy, forward the Host header, or use HTTPS", request.Header.Get("Origin"), request.Host))
}

// ready serves /readyz. The status is 503 if any relay doesn't work, because its loop hangs or its database is unavailable. A
// relay counts as working while it waits for relays with another configuration to stop. Otherwise a rolling deployment of a
// new configuration would never stop the old relays. Only readers get the reasons, because errors of databases contain users,
// hosts and ports.
func ready(sources []Source, guard *guard) http.HandlerFunc {
	type readiness struct {
		Ready   bool              `json:"ready"`
		Sources map[string]string `json:"sources"` // "ok", "ok, and waits" with a reason, or an error
	}
	return func(w http.ResponseWriter, request *http.Request) {
		answer, lines, code := readiness{Ready: true, Sources: map[string]string{}}, "", http.StatusOK
		withReasons := guard.roleOf(request) >= reader
		for _, source := range sources {
			state := "ok"
			if err := source.Healthy(); err != nil {
				answer.Ready, state, code = false, "not working; the reason is shown to readers only", http.StatusServiceUnavailable
				if withReasons {
					state = err.Error()
				}
			} else if source.StandbyReason != nil && source.StandbyReason() != "" {
				state = "ok, and waits"
				if withReasons {
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

// wantsJSON reports whether a client accepts JSON.
func wantsJSON(request *http.Request) bool {
	for accepted := range strings.SplitSeq(request.Header.Get("Accept"), ",") {
		if kind, _, err := mime.ParseMediaType(accepted); err == nil && kind == "application/json" {
			return true
		}
	}
	return false
}

// countTimeout is the time limit of a request.
const countTimeout = 10 * time.Second

// status serves /status. The response lists every source, and the status code is 503 if a source couldn't be counted. Only one
// request at a time counts the tables.
func (a *api) status(sources []Source) http.HandlerFunc {
	type sourceStatus struct {
		Source string `json:"source"`
		Failed string `json:"failed,omitempty"` // the error, if the table could not be counted
		*Report
		Sinks []sinkReport `json:"sinks,omitempty"` // the sinks of this process's relay
	}
	turn := make(chan struct{}, 1)
	return func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), countTimeout)
		defer cancel()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			writeText(w, http.StatusServiceUnavailable, "another request is counting the tables: try again\n")
			return
		}
		var answers []sourceStatus
		code := http.StatusOK
		for _, source := range sources {
			counted, err := source.Status(ctx)
			if err != nil {
				code = http.StatusServiceUnavailable
				a.options.Logger.Warn("counting a table failed", "source", source.Name, "error", err)
				answers = append(answers, sourceStatus{Source: source.Name, Failed: err.Error(), Sinks: a.sinkReports(source.Watch, nil)})
				continue
			}
			counted.Controls = a.hideControls(counted.Controls)
			report := NewReport(counted)
			answers = append(answers, sourceStatus{Source: source.Name, Report: &report, Sinks: a.sinkReports(source.Watch, counted.Controls)})
		}
		writeJSON(w, code, map[string]any{"sources": answers})
	}
}

// Report is the JSON form of a storage.Status, for /status and for the command
// line.
type Report struct {
	Claim                storage.Claim       `json:"claim"` // the claim mode; empty until a relay has started
	Pending              int64               `json:"pending"`
	Claimed              int64               `json:"claimed"`
	Scheduled            int64               `json:"scheduled"`
	Retry                int64               `json:"retry"`
	Error                int64               `json:"error"`
	Done                 int64               `json:"done"`
	OldestPendingSeconds float64             `json:"oldest_pending_seconds"`
	OldestRetrySeconds   float64             `json:"oldest_retry_seconds"` // age of the oldest message that waits for another attempt
	HeldKeys             int64               `json:"held_keys"`            // keys that are blocked by a parked message
	OldestHeldSeconds    float64             `json:"oldest_held_key_seconds"`
	Lanes                int                 `json:"lanes"` // leased now
	Relays               []storage.RelayInfo `json:"relays"`
	Controls             []storage.Control   `json:"controls"` // pauses and limits

	// PendingTopics counts the first 1,000 pending messages by topic.
	PendingTopics map[string]int64 `json:"pending_topics"`

	// Estimated and AtLeast list states that have too many messages to count. The
	// count of a state in Estimated is an estimate, and in AtLeast a lower bound.
	Estimated []storage.State `json:"estimated,omitempty"`
	AtLeast   []storage.State `json:"at_least,omitempty"`

	// Absent names the values that are 0 in the Report because they could not be read in time.
	Absent []storage.Gauge `json:"absent,omitempty"`
}

// NewReport returns the report of a status. Lists without elements are empty, not null.
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

// writeText writes a response. Like writeJSON, it ignores an error of the connection, which means that the client is gone.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// writeJSON writes a response as JSON. If the value can't be encoded, it writes status 500.
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
