package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/outbox"
)

// Template is text with places that each message fills: {topic}, {key}, {id} and
// {header:NAME}; {{ and }} stand for braces themselves.
type Template struct {
	texts []string // one more than places
	names []string // of the places, as they are written between the braces
}

var templateParts = regexp.MustCompile(`\{\{|\}\}|\{(?:topic|key|id|header:[^{}]+)\}|[{}]`)

const headerPlace = "header:"

// ParseTemplate reads a template. A brace that belongs to no place is an error,
// which completes the sentence "the setting …".
func ParseTemplate(text string) (Template, error) {
	t, end := Template{texts: []string{""}}, 0
	for _, at := range templateParts.FindAllStringIndex(text, -1) {
		last, part := &t.texts[len(t.texts)-1], text[at[0]:at[1]]
		*last += text[end:at[0]]
		switch {
		case part == "{{" || part == "}}":
			*last += part[:1]
		case len(part) == 1:
			return Template{}, errors.New("has a placeholder that is not known: there are {topic}, {key}, {id} and {header:NAME}, and {{ and }} for braces")
		default:
			t.names, t.texts = append(t.names, part[1:len(part)-1]), append(t.texts, "")
		}
		end = at[1]
	}
	t.texts[len(t.texts)-1] += text[end:]
	return t, nil
}

// Texts returns what stands between the places: one text more than there are
// places.
func (t Template) Texts() []string { return t.texts }

// Places returns how many places a message fills; without one, the text is the
// same for all messages.
func (t Template) Places() int { return len(t.names) }

// Fill returns the text of a message. Escape makes a value, which may be empty, fit
// for the place of this number, from 0; nil leaves it as it is. A header that the
// message doesn't have is an error, as is what escape returns; it completes the
// sentence "the text …".
func (t Template) Fill(m *outbox.Message, escape func(place int, value string) (string, error)) (string, error) {
	text := t.texts[0]
	for i, name := range t.names {
		var value string
		switch name {
		case "topic":
			value = m.Topic
		case "key":
			value = m.Key
		case "id":
			value = m.ID
		default:
			var there bool
			if value, there = m.Headers[strings.TrimPrefix(name, headerPlace)]; !there {
				return "", fmt.Errorf("needs the message's %s, which is not there", spoken(name))
			}
		}
		if escape != nil {
			var err error
			if value, err = escape(i, value); err != nil {
				return "", fmt.Errorf("can't have the message's %s, which %w", spoken(name), err)
			}
		}
		text += value + t.texts[i+1]
	}
	return text, nil
}

// NotEmpty is an escape for [Template.Fill] that changes nothing, and refuses what
// is empty.
func NotEmpty(_ int, value string) (string, error) {
	if value == "" {
		return "", errors.New("is empty")
	}
	return value, nil
}

func spoken(place string) string { return strings.Replace(place, headerPlace, "header ", 1) }
