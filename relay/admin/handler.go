package admin

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
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
