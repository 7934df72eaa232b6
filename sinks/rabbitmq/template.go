package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// template is a text with places for what a message has.
type template []piece

// piece is a literal text, or a place.
type piece struct {
	text   string
	place  func(sinks.Message) string // nil for a text
	header string                     // the place is this header of the message
}

var places = map[string]func(sinks.Message) string{
	"topic": func(m sinks.Message) string { return m.Topic },
	"key":   func(m sinks.Message) string { return m.Key },
	"id":    func(m sinks.Message) string { return m.ID },
}

// parseTemplate reads a template. Its error completes "the setting …".
func parseTemplate(text string) (template, error) {
	var t template
	for text != "" {
		p, rest, err := parsePiece(text)
		if err != nil {
			return nil, err
		}
		t, text = append(t, p), rest
	}
	return t, nil
}

var errBraces = errors.New("has a brace without its other one: write {{ or }} for a brace itself")

func parsePiece(text string) (p piece, rest string, err error) {
	at := strings.IndexAny(text, "{}")
	switch {
	case at < 0:
		return piece{text: text}, "", nil
	case at > 0:
		return piece{text: text[:at]}, text[at:], nil
	case strings.HasPrefix(text, "{{") || strings.HasPrefix(text, "}}"):
		return piece{text: text[:1]}, text[2:], nil
	}
	name, rest, closed := strings.Cut(text[1:], "}")
	if text[0] == '}' || !closed {
		return piece{}, "", errBraces
	}
	p, err = placeOf(name)
	return p, rest, err
}

func placeOf(name string) (piece, error) {
	if header, is := strings.CutPrefix(name, "header:"); is && header != "" {
		return piece{header: header}, nil
	}
	if place, known := places[name]; known {
		return piece{place: place}, nil
	}
	return piece{}, fmt.Errorf("has {%s}: it must be one of {topic}, {key}, {id} and {header:NAME}", name)
}

// fixed says that the text is the same for all messages.
func (t template) fixed() bool {
	for _, p := range t {
		if p.place != nil || p.header != "" {
			return false
		}
	}
	return true
}

// of returns the text for a message.
func (t template) of(m sinks.Message) (string, error) {
	if len(t) == 1 {
		return t[0].of(m)
	}
	var text strings.Builder
	for _, p := range t {
		part, err := p.of(m)
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	return text.String(), nil
}

func (p piece) of(m sinks.Message) (string, error) {
	switch {
	case p.place != nil:
		return p.place(m), nil
	case p.header == "":
		return p.text, nil
	}
	value, there := m.Headers[p.header]
	if !there {
		return "", fmt.Errorf("is made of the header %q, which the message doesn't have", p.header)
	}
	return value, nil
}
