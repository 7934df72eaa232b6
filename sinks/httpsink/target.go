package httpsink

import (
	"errors"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// target is where requests go: one URL, or a template that each message fills.
type target struct {
	text  sinks.Template
	parts []part   // in which of the URL's parts the template's places stand
	fixed *url.URL // where no message has a say

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
	template, err := sinks.ParseTemplate(text)
	if err != nil {
		return target{}, err
	}
	t := target{text: template, anchored: true}
	if err := t.look(strings.Join(template.Texts(), gap)); err != nil {
		return target{}, err
	}
	example, err := parseURL(t.example())
	if err == nil && template.Places() == 0 {
		t.fixed = example
	}
	return t, err
}

// look finds the parts of a template in which gaps stand for the places.
func (t *target) look(pattern string) error {
	if strings.HasPrefix(pattern, gap) && !strings.HasPrefix(pattern, gap+"://") {
		return t.lookBehindBase(pattern)
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

// lookBehindBase is for a template that begins with a URL that the message has.
func (t *target) lookBehindBase(pattern string) error {
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
	filled, err := t.text.Fill(m, t.escape)
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
func (t *target) secrets() (secrets []sinks.Secret) {
	if t.fixed != nil {
		return secretsOf(t.fixed)
	}
	for _, text := range t.text.Texts() {
		_, path, query := cut(strings.Replace(text, "://", "", 1))
		secrets = append(secrets, worthHiding(path), worthHiding(query))
	}
	return secrets
}
