package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Admin configures the server for metrics, probes, the operator's web page and its API.
type Admin struct {
	// Listen is the server's address, host:port. If Listen is empty, no server is started.
	Listen string

	ReaderToken   string   // if it is empty, requests that only read need no token
	OperatorToken string   // if it is empty, changes are disabled
	Hosts         []string // host names at which the page is served without a ReaderToken, in addition to localhost and the machine's name and addresses
	Payloads      Payloads
	TLS           AdminTLS

	TraceURL   string // the URL of a trace, with {trace_id} in it
	UserHeader UserHeader

	secrets []origin // the files and commands from which the tokens are read
}

// Await waits for the commands that print tokens, if their last token is too old. If the server has refused a token, Await waits
// for all commands. The wait ends early if the context ends.
func (a Admin) Await(ctx context.Context, refused bool) { await(ctx, a.secrets, refused) }

// UserHeader is a header with the name of the person who makes a request. The server ignores it unless a trusted proxy sends it.
type UserHeader struct {
	Name           string
	TrustedProxies []netip.Prefix
}

// AdminTLS names the files of the admin server's certificate. Without them, the server doesn't use TLS.
type AdminTLS struct{ CertFile, KeyFile string }

// Payloads decides whether the page and its API show payloads and header values.
type Payloads string

// Values of Payloads.
const (
	ShowPayloads Payloads = "show" // the default
	HidePayloads Payloads = "hide"
)

// Set sets one setting. The name and the form of the text are as in the configuration file. The
// error describes why the text is invalid.
func (a *Admin) Set(name, text string) error { return setText(adminFields(), a, name, text) }

func adminFields() []field[Admin] {
	return []field[Admin]{
		value("listen", parseListen, func(a *Admin) *string { return &a.Listen }),
		secret("reader_token", parseToken, func(a *Admin) *string { return &a.ReaderToken }),
		secret("operator_token", parseToken, func(a *Admin) *string { return &a.OperatorToken }),
		values("hosts", text(255), func(a *Admin) *[]string { return &a.Hosts }),
		value("payloads", oneOf(ShowPayloads, HidePayloads), func(a *Admin) *Payloads { return &a.Payloads }),
		value("trace_url", parseTraceURL, func(a *Admin) *string { return &a.TraceURL }),
		group("user_header", []field[UserHeader]{
			value("name", parseHeaderName, func(u *UserHeader) *string { return &u.Name }),
			values("trusted_proxies", parseNetwork, func(u *UserHeader) *[]netip.Prefix { return &u.TrustedProxies }),
		}, func(a *Admin) *UserHeader { return &a.UserHeader }),
		group("tls", []field[AdminTLS]{
			value("cert_file", text(4096), func(t *AdminTLS) *string { return &t.CertFile }),
			value("key_file", text(4096), func(t *AdminTLS) *string { return &t.KeyFile }),
		}, func(a *Admin) *AdminTLS { return &a.TLS }),
	}
}

// shortestToken is the minimum length of a token. Shorter tokens could be guessed.
const shortestToken = 16

// parseToken checks a token, which must be usable in an HTTP header.
func parseToken(text string) (string, error) {
	if len(text) < shortestToken || len(text) > 1000 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("isn't a token: it needs at least %d ASCII characters and no blanks; create one with openssl rand -hex 32", shortestToken)
	}
	return text, nil
}

// parseTraceURL checks the URL of a trace.
func parseTraceURL(text string) (string, error) {
	if u, err := url.Parse(strings.ReplaceAll(text, "{trace_id}", "0")); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || !strings.Contains(text, "{trace_id}") {
		return "", errors.New("isn't the URL of a trace: write https://jaeger.example.com/trace/{trace_id}")
	}
	return text, nil
}

// parseHeaderName checks the name of an HTTP header.
func parseHeaderName(text string) (string, error) {
	if text == "" || len(text) > 100 || strings.Trim(text, "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
		return "", errors.New("isn't the name of a header: write X-Forwarded-User, or the name that the proxy sets")
	}
	return text, nil
}

// parseNetwork reads a network, or the address of one machine.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if addr, isAddr := netip.ParseAddr(text); isAddr == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
	}
	if err != nil {
		return network, errors.New("isn't a network or an address: write 10.0.0.0/8 or 127.0.0.1")
	}
	return network.Masked(), nil
}

// checkAdmin reports settings of the admin server that contradict each other or lack another setting.
func (r *reader) checkAdmin(root *node, c *Config) {
	n := root.get("admin")
	if n == nil || anyBroken(n) {
		return
	}
	if c.Admin.OperatorToken != "" && c.Admin.OperatorToken == c.Admin.ReaderToken {
		r.fail(n, "has the same token for readers and operators, so readers could change everything: use two tokens")
	}
	if u := c.Admin.UserHeader; (u.Name == "") != (len(u.TrustedProxies) == 0) {
		r.fail(n.get("user_header"), "needs both name and trusted_proxies: the header counts only in requests from these proxies")
	}
	if (c.Admin.TLS.CertFile == "") != (c.Admin.TLS.KeyFile == "") {
		r.fail(n.get("tls"), "needs both cert_file and key_file")
	}
}

// parseListen reads host:port, :port or port. The default host is the loopback
// address, because the page must not be public by accident.
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

// Log configures the log. The zero value is level info as text.
type Log struct {
	Level  slog.Level
	Format Format
}

// Format is the form of log lines.
type Format string

// Values of Format.
const (
	Text Format = "text" // key=value; the default
	JSON Format = "json"
)

// Set sets one setting, level or format. The form of the text is as in the configuration file. The
// error describes why the text is invalid.
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
