package sinks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Template is text with places that each message fills: {topic}, {key}, {id} and
// {header:NAME}. The zero Template is empty text.
type Template struct {
	texts []string // one more than places
	names []string // of the places, as they are written between the braces
}

var templatePlace = regexp.MustCompile(`\{(topic|key|id|header:[^{}]+)\}`)

const headerPlace = "header:"

// ParseTemplate reads a template. A brace that belongs to no place is an error,
// which completes the sentence "the setting …".
func ParseTemplate(text string) (Template, error) {
	t := Template{texts: templatePlace.Split(text, -1)}
	for _, found := range templatePlace.FindAllStringSubmatch(text, -1) {
		t.names = append(t.names, found[1])
	}
	if strings.ContainsAny(strings.Join(t.texts, ""), "{}") {
		return Template{}, errors.New("has a placeholder that is not known: there are {topic}, {key}, {id} and {header:NAME}")
	}
	return t, nil
}

// Texts returns what stands between the places: one text more than there are
// places.
func (t Template) Texts() []string { return t.texts }

// Places returns how many places a message fills.
func (t Template) Places() int { return len(t.names) }

// Fill returns the text of a message. Escape makes a value fit for the place of
// this number, from 0. A message that has no value for a place is an error, as
// is what escape returns; it completes the sentence "the text …".
func (t Template) Fill(m *Message, escape func(place int, value string) (string, error)) (string, error) {
	filled := slices.Clone(t.texts)
	for i, name := range t.names {
		value := valueOf(m, name)
		if value == "" {
			return "", fmt.Errorf("needs the message's %s, which is not there", spoken(name))
		}
		escaped, err := escape(i, value)
		if err != nil {
			return "", fmt.Errorf("can't have the message's %s, which %w", spoken(name), err)
		}
		filled[i] += escaped
	}
	return strings.Join(filled, ""), nil
}

func spoken(place string) string { return strings.Replace(place, headerPlace, "header ", 1) }

func valueOf(m *Message, place string) string {
	switch place {
	case "topic":
		return m.Topic
	case "key":
		return m.Key
	case "id":
		return m.ID
	}
	return m.Headers[strings.TrimPrefix(place, headerPlace)]
}
