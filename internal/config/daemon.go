package config

import (
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

// Admin is the server for metrics and probes.
type Admin struct {
	// Listen is its address, host:port. Empty means that there is none.
	Listen string
}

// Set sets one setting as the file would, by the name that it has there:
// listen. The error says what is wrong with the text.
func (a *Admin) Set(name, text string) error { return setText(adminFields(), a, name, text) }

func adminFields() []field[Admin] {
	return []field[Admin]{value("listen", parseListen, func(a *Admin) *string { return &a.Listen })}
}

// parseListen reads host:port, :port or port. Without a host it is the
// loopback one: what is shown is for operators, not for the network.
func parseListen(text string) (string, error) {
	if !strings.Contains(text, ":") {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil {
		return "", errors.New("isn't an address: write 127.0.0.1:8321, or 0.0.0.0:8321 to listen on all interfaces")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}

// Log is what is logged, and how. The zero value is level info as text.
type Log struct {
	Level  slog.Level
	Format Format
}

// Format is the form of log lines.
type Format string

// The forms of log lines.
const (
	Text Format = "text" // key=value; the default
	JSON Format = "json"
)

// Set sets one setting as the file would, by the name that it has there: level
// or format. The error says what is wrong with the text.
func (l *Log) Set(name, text string) error { return setText(logFields(), l, name, text) }

func logFields() []field[Log] {
	return []field[Log]{
		value("level", parseLevel, func(l *Log) *slog.Level { return &l.Level }),
		value("format", oneOf(Text, JSON), func(l *Log) *Format { return &l.Format }),
	}
}

func parseLevel(text string) (slog.Level, error) {
	if _, err := oneOf("debug", "info", "warn", "error")(text); err != nil {
		return 0, err
	}
	var level slog.Level
	err := level.UnmarshalText([]byte(text))
	return level, err
}
