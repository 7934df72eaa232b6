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

// target is where requests go: one URL, or a template that each message fills.
type target struct {
	text  settings.Template
	parts []part   // in which of the URL's parts the template's places stand
	fixed *url.URL // where no message has a say
	host  *url.URL // has the scheme and the host that all messages go to; nil where they have a say

	chosen   bool // a message has a say in the scheme, the host or the port
	anchored bool // … in the beginning of the host's name at most, as in {key}.example.com
}

// part is one of a URL's, as far as values are escaped differently in it.
type part int

const (
	inBase      part = iota // at the beginning: a URL itself
	inScheme                // all of it
	inAuthority             // a host, a port, or a piece of one
	inPath                  // a segment, or a piece of one
	inQuery                 // a name, a value, or a piece of one
)

// gap stands for a place where a template is looked at as a whole.
const gap = "\x00"

// parseTarget reads a URL or a template of one. Its errors complete "the url …"
// and show none of it.
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

// findParts finds the parts of a template in which gaps stand for the places.
func (t *target) findParts(pattern string) error {
	if strings.HasPrefix(pattern, gap) && !strings.HasPrefix(pattern, gap+"://") {
		return t.findPartsBehindBase(pattern)
	}
	scheme, rest, _ := strings.Cut(pattern, "://")
	if strings.Contains(scheme, gap) && scheme != gap {
		return errors.New("can have a placeholder for the scheme as a whole, not for a piece of it")
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

// findPartsBehindBase is for a template that begins with a URL that the message has.
func (t *target) findPartsBehindBase(pattern string) error {
	authority, path, query := cut(pattern)
	if authority != gap {
		return errors.New("must go on with / or ? behind a placeholder for a URL's beginning")
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

// cut takes a URL behind its scheme apart. A fragment stays where it is, and is
// found later.
func cut(rest string) (authority, path, query string) {
	if at := strings.IndexByte(rest, '?'); at >= 0 {
		rest, query = rest[:at], rest[at:]
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		rest, path = rest[:at], rest[at:]
	}
	return rest, path, query
}

// example fills the template with what fits.
func (t *target) example() string {
	stands := map[part]string{inBase: "http://host", inScheme: "http", inAuthority: "1", inPath: "x", inQuery: "x"}
	text := t.text.Texts()[0]
	for i, where := range t.parts {
		text += stands[where] + t.text.Texts()[i+1]
	}
	return text
}

// of returns the URL of a message's request. Its errors complete "the url …".
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

// secrets are the template's own texts, which an answer must not repeat.
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

// escape makes a value fit for its place in the URL, or says why it can't be.
// Its errors complete "the value …".
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

// base takes a URL to which the template may add a path and a query.
func (t *target) base(value string) (string, error) {
	given, err := parseURL(value)
	next := t.text.Texts()[1]
	switch {
	case err != nil:
		return "", err
	case next != "" && (given.RawQuery != "" || given.ForceQuery):
		return "", errors.New("has a query, which the rest of the url can't follow")
	case strings.HasPrefix(next, "/"):
		return strings.TrimSuffix(value, "/"), nil
	}
	return value, nil
}

func notInHosts(r rune) bool {
	letterOrDigit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letterOrDigit && !strings.ContainsRune(".-_:[]", r)
}

// checkHost is for a host that a message has a say in. Forms that programs read
// differently are refused: what one calls a name is another's address inside.
func checkHost(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	bracketed := strings.HasPrefix(u.Host, "[")
	switch number, err := strconv.Atoi(port); {
	case strings.HasSuffix(u.Host, ":") || port != "" && (err != nil || number < 1 || number > 65535):
		return errors.New("has a port that is no number from 1 to 65535")
	case strings.ContainsFunc(u.Host, notInHosts):
		return errors.New("has a character that a host can't have; write an international name in its xn-- form")
	case bracketed || endsInNumber(host):
		return checkAddress(host, bracketed)
	case len(host) > 253 || slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."), badLabel):
		return errors.New("has a host that is no name")
	}
	return nil
}

func badLabel(label string) bool {
	return label == "" || len(label) > 63 || strings.Contains(label, ":")
}

// endsInNumber says that the host is an address to some programs, also as in
// 127.1, 2130706433 and 0x7f.0.0.1 (WHATWG's URL standard, "ends in a number").
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

// checkSegments finds what a server would take for a way up in the path.
func checkSegments(u *url.URL) error {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return errors.New("has a segment of one or two dots in its path, which leads to another path")
		}
	}
	return nil
}
