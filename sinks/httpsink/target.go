package httpsink

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// target is the URL that requests go to, or a template for the URLs of messages.
type target struct {
	text  settings.Template
	parts []part   // for each placeholder, the part of the URL it is in
	fixed *url.URL // the URL, if it has no placeholders
	host  *url.URL // the scheme and host of all requests; nil if messages choose them

	chosen   bool // messages choose the scheme, the host or the port
	anchored bool // messages choose at most the beginning of the host name, as in {key}.example.com
}

// part is a part of a URL with its own rules for escaping.
type part int

const (
	inBase      part = iota // the beginning of the template, which stands for a URL
	inScheme                // the whole scheme
	inAuthority             // a host, a port, or a part of one
	inPath                  // a path segment, or a part of one
	inQuery                 // a name or a value, or a part of one
)

// gap replaces each placeholder while the template is parsed as a URL.
const gap = "\x00"

// parseTarget parses a URL or a URL template. The text of an error completes the sentence
// "the url …" and doesn't contain the URL.
func parseTarget(text string) (target, error) {
	if strings.Contains(text, gap) {
		return target{}, errMalformed
	}
	template, err := settings.ParseTemplate(text)
	if err != nil {
		return target{}, err
	}
	t := target{text: template, anchored: true}
	if err := t.findParts(strings.Join(template.Texts(), gap)); err != nil {
		return target{}, err
	}
	example, err := parseURL(t.example())
	if err == nil && template.Places() == 0 {
		t.fixed = example
	}
	if err == nil && !t.chosen {
		t.host = example
	}
	return t, err
}

// findParts determines which part of the URL each placeholder is in. The argument
// pattern is the template, with each placeholder replaced by the constant gap.
func (t *target) findParts(pattern string) error {
	if strings.HasPrefix(pattern, gap) && !strings.HasPrefix(pattern, gap+"://") {
		return t.findPartsBehindBase(pattern)
	}
	scheme, rest, _ := strings.Cut(pattern, "://")
	if strings.Contains(scheme, gap) && scheme != gap {
		return errors.New("can have a placeholder for the whole scheme, not for a part of it")
	}
	authority, path, query := cut(rest)
	t.add(inScheme, scheme)
	t.add(inAuthority, authority)
	t.add(inPath, path)
	t.add(inQuery, query)
	last := authority[strings.LastIndex(authority, gap)+1:]
	t.chosen = strings.Contains(scheme+authority, gap)
	t.anchored = scheme != gap && (last == authority || strings.HasPrefix(last, ".") && len(last) > 1)
	return nil
}

// findPartsBehindBase does the work of findParts for a template that begins with a
// placeholder for a URL.
func (t *target) findPartsBehindBase(pattern string) error {
	authority, path, query := cut(pattern)
	if authority != gap {
		return errors.New("must continue with / or ? after a placeholder that stands for the beginning of the URL")
	}
	t.add(inBase, authority)
	t.add(inPath, path)
	t.add(inQuery, query)
	t.chosen, t.anchored = true, false
	return nil
}

func (t *target) add(where part, piece string) {
	for range strings.Count(piece, gap) {
		t.parts = append(t.parts, where)
	}
}

// cut splits a URL from which the scheme was removed. A fragment stays in the last
// part; parseURL refuses it later.
func cut(rest string) (authority, path, query string) {
	if at := strings.IndexByte(rest, '?'); at >= 0 {
		rest, query = rest[:at], rest[at:]
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		rest, path = rest[:at], rest[at:]
	}
	return rest, path, query
}

// example returns the template filled with valid values.
func (t *target) example() string {
	stands := map[part]string{inBase: "http://host", inScheme: "http", inAuthority: "1", inPath: "x", inQuery: "x"}
	text := t.text.Texts()[0]
	for i, where := range t.parts {
		text += stands[where] + t.text.Texts()[i+1]
	}
	return text
}

// of returns the URL for a message. An error completes the sentence "the url …".
func (t *target) of(m *sinks.Message) (*url.URL, error) {
	if t.fixed != nil {
		return t.fixed, nil
	}
	filled, err := t.text.Fill(&m.Message, t.escape)
	if err != nil {
		return nil, err
	}
	made, err := parseURL(filled)
	if err != nil {
		return nil, err
	}
	if t.chosen {
		err = checkHost(made)
	}
	return made, errors.Join(err, checkSegments(made))
}

// secrets returns the paths and queries of the template's fixed texts, which
// outcomes must not contain.
func (t *target) secrets() (secrets []settings.Secret) {
	if t.fixed != nil {
		return secretsOf(t.fixed)
	}
	for _, text := range t.text.Texts() {
		_, path, query := cut(strings.Replace(text, "://", "", 1))
		secrets = append(secrets, worthHiding(path), worthHiding(query))
	}
	return secrets
}

// escape escapes a value for its placeholder. It returns an error if the value is not
// allowed there. The text of an error completes the sentence "the value …".
func (t *target) escape(place int, value string) (string, error) {
	if value == "" {
		return settings.NotEmpty(place, value)
	}
	switch t.parts[place] {
	case inBase:
		return t.base(value)
	case inScheme:
		if value != "http" && value != "https" {
			return "", errors.New("must be http or https")
		}
		return value, nil
	case inAuthority:
		if strings.ContainsFunc(value, notInHosts) {
			return "", errors.New("has a character that a host or port can't have")
		}
		return value, nil
	case inPath:
		return url.PathEscape(value), nil
	}
	return url.QueryEscape(value), nil
}

// base checks a URL to which the template may append a path and a query.
func (t *target) base(value string) (string, error) {
	given, err := parseURL(value)
	next := t.text.Texts()[1]
	switch {
	case err != nil:
		return "", err
	case next != "" && (given.RawQuery != "" || given.ForceQuery):
		return "", errors.New("has a query, although the template continues after the placeholder")
	case strings.HasPrefix(next, "/"):
		return strings.TrimSuffix(value, "/"), nil
	}
	return value, nil
}

func notInHosts(r rune) bool {
	letterOrDigit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letterOrDigit && !strings.ContainsRune(".-_:[]", r)
}

// checkHost checks a host that messages choose. It refuses forms that programs parse
// differently: a text that one program resolves as a name may be a private address
// for another program.
func checkHost(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	bracketed := strings.HasPrefix(u.Host, "[")
	switch number, err := strconv.Atoi(port); {
	case strings.HasSuffix(u.Host, ":") || port != "" && (err != nil || number < 1 || number > 65535):
		return errors.New("has a port that is not a number from 1 to 65535")
	case strings.ContainsFunc(u.Host, notInHosts):
		return errors.New("has a character that a host can't have; write an international name in its xn-- form")
	case bracketed || endsInNumber(host):
		return checkAddress(host, bracketed)
	case len(host) > 253 || slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."), badLabel):
		return errors.New("has a host that is not a valid name")
	}
	return nil
}

func badLabel(label string) bool {
	return label == "" || len(label) > 63 || strings.Contains(label, ":")
}

// endsInNumber reports whether some programs parse the host as an address, including
// forms such as 127.1, 2130706433 and 0x7f.0.0.1 (WHATWG's URL standard, "ends in a
// number").
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits, hex := strings.CutPrefix(last, "0x")
	set := "0123456789"
	if hex {
		set += "abcdef"
	}
	return last != "" && strings.Trim(digits, set) == ""
}

func checkAddress(host string, bracketed bool) error {
	address, err := netip.ParseAddr(host)
	if err != nil || address.Zone() != "" || address.Is6() != bracketed {
		return errors.New("has a host that is an address in an unusual form: write it like 192.0.2.1 or [2001:db8::1]")
	}
	return nil
}

// checkSegments refuses path segments that a server would resolve to a parent
// directory.
func checkSegments(u *url.URL) error {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return errors.New("has a segment of one or two dots in its path, which refers to another path")
		}
	}
	return nil
}
