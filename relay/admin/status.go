package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

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
