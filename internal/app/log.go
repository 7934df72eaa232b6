package app

import (
	"io"
	"log/slog"

	"github.com/rowrelay/rowrelay/internal/config"
)

// NewLogger returns a logger that writes as the configuration says.
func NewLogger(c config.Log, out io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.JSON {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
