package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/outbox"
)

// Template is a text with the placeholders {topic}, {key}, {id} and {header:NAME},
// which the values of each message replace. {{ and }} stand for single braces.
type Template struct {
	texts []string // the texts around the placeholders; one more than names
	names []string // the placeholders, without braces
}

var templateParts = regexp.MustCompile(`\{\{|\}\}|\{(?:topic|key|id|header:[^{}]+)\}|[{}]`)

const headerPlace = "header:"

// ParseTemplate parses a template. It returns an error if a single brace isn't part
// of a placeholder. The error completes the sentence "the setting …".
func ParseTemplate(text string) (Template, error) {
	t, end := Template{texts: []string{""}}, 0
	for _, at := range templateParts.FindAllStringIndex(text, -1) {
		last, part := &t.texts[len(t.texts)-1], text[at[0]:at[1]]
		*last += text[end:at[0]]
		switch {
		case part == "{{" || part == "}}":
			*last += part[:1]
		case len(part) == 1:
			return Template{}, errors.New("has an unknown placeholder: use {topic}, {key}, {id} or {header:NAME}, and {{ and }} for braces")
		default:
			t.names, t.texts = append(t.names, part[1:len(part)-1]), append(t.texts, "")
		}
		end = at[1]
	}
	t.texts[len(t.texts)-1] += text[end:]
	return t, nil
}

// Texts returns the texts around the placeholders. Their number is Places plus one.
func (t Template) Texts() []string { return t.texts }

// Places returns the number of placeholders. If it is 0, the text is the same for
// all messages.
func (t Template) Places() int { return len(t.names) }

// Fill returns the text with a message's values in place of the placeholders. If escape
// is not nil, Fill calls it for each placeholder with the placeholder's index (from 0)
// and value (possibly empty), and uses the result instead of the value. Fill returns an
// error if the message lacks a header or escape fails. The error completes the sentence
// "the text …".
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
				return "", fmt.Errorf("needs the message's %s, which is missing", spoken(name))
			}
		}
		if escape != nil {
			var err error
			if value, err = escape(i, value); err != nil {
				return "", fmt.Errorf("can't contain the message's %s, which %w", spoken(name), err)
			}
		}
		text += value + t.texts[i+1]
	}
	return text, nil
}

// WithTopic returns the text with a topic in place of {topic}. It keeps the other placeholders, whose values are private or
// differ from message to message.
func (t Template) WithTopic(topic string) string {
	text := t.texts[0]
	for i, name := range t.names {
		value := "{" + name + "}"
		if name == "topic" {
			value = topic
		}
		text += value + t.texts[i+1]
	}
	return text
}

// NotEmpty is an escape function for [Template.Fill]. It returns the value
// unchanged, or an error if the value is empty.
func NotEmpty(_ int, value string) (string, error) {
	if value == "" {
		return "", errors.New("is empty")
	}
	return value, nil
}

func spoken(place string) string { return strings.Replace(place, headerPlace, "header ", 1) }
