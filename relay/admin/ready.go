package admin

import (
	"net/http"
	"strings"
)

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
