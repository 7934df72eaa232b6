package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
)

// Admin is the server for metrics, probes, the page and its API.
type Admin struct {
	// Listen is its address, host:port. Empty means that there is none.
	Listen string

	ReaderToken   string   // without one everybody is a reader
	OperatorToken string   // without one nobody changes anything
	Hosts         []string // names by which everybody may read, besides localhost and addresses
	Payloads      Payloads
	TLS           AdminTLS
}

// AdminTLS are the files of the admin server's certificate; none means no TLS.
type AdminTLS struct{ CertFile, KeyFile string }

// Payloads says whether the page and its API show what messages carry.
type Payloads string

// What is shown of payloads.
const (
	ShowPayloads Payloads = "show" // the default
	HidePayloads Payloads = "hide"
)

// Set sets one setting as the file would, by the name that it has there:
// listen. The error says what is wrong with the text.
func (a *Admin) Set(name, text string) error { return setText(adminFields(), a, name, text) }

func adminFields() []field[Admin] {
	return []field[Admin]{
		value("listen", parseListen, func(a *Admin) *string { return &a.Listen }),
		secret("reader_token", parseToken, func(a *Admin) *string { return &a.ReaderToken }),
		secret("operator_token", parseToken, func(a *Admin) *string { return &a.OperatorToken }),
		values("hosts", text(255), func(a *Admin) *[]string { return &a.Hosts }),
		value("payloads", oneOf(ShowPayloads, HidePayloads), func(a *Admin) *Payloads { return &a.Payloads }),
		group("tls", []field[AdminTLS]{
			value("cert_file", text(4096), func(t *AdminTLS) *string { return &t.CertFile }),
			value("key_file", text(4096), func(t *AdminTLS) *string { return &t.KeyFile }),
		}, func(a *Admin) *AdminTLS { return &a.TLS }),
	}
}

// shortestToken is so long that nobody guesses it.
const shortestToken = 16

// parseToken reads a token as it stands in a header.
func parseToken(text string) (string, error) {
	if len(text) < shortestToken || len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("isn't a token: it has %d characters or more of ASCII, and no blanks, such as openssl rand -hex 32 makes", shortestToken)
	}
	return text, nil
}

// checkAdmin reports settings of the admin server that don't go together.
func (r *reader) checkAdmin(root *node, c *Config) {
	n := root.get("admin")
	if n == nil || anyBroken(n) {
		return
	}
	if c.Admin.OperatorToken != "" && c.Admin.OperatorToken == c.Admin.ReaderToken {
		r.fail(n, "has one token for readers and operators: readers could change everything")
	}
	if (c.Admin.TLS.CertFile == "") != (c.Admin.TLS.KeyFile == "") {
		r.fail(n.get("tls"), "needs both cert_file and key_file")
	}
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
