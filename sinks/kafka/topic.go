package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// template makes a topic's name of a message.
type template struct {
	texts []string // one more than places
	froms []string // what stands between them: "" for the topic, or a header's name
}

var placeholder = regexp.MustCompile(`\{topic\}|\{header:[^{}]+\}`)

func parseTemplate(text string) template {
	var t template
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := strings.TrimPrefix(text[at[0]+1:at[1]-1], "topic")
		t.froms = append(t.froms, strings.TrimPrefix(name, "header:"))
	}
	t.texts = placeholder.Split(text, -1)
	return t
}

func notInTopics(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// checkTemplate completes "the topic …".
func checkTemplate(text string) error {
	rest := placeholder.ReplaceAllString(text, "")
	switch {
	case strings.ContainsAny(rest, "{}"):
		return errors.New("has a placeholder that is not known: there are {topic} and {header:NAME}")
	case strings.ContainsFunc(rest, notInTopics):
		return errors.New("must have letters, digits, dots, underscores and hyphens only")
	case rest == text:
		return checkTopic(text)
	}
	return nil
}

// checkTopic completes "the topic …".
func checkTopic(name string) error {
	const longest = 249
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > longest:
		return fmt.Errorf("is longer than Kafka's %d characters", longest)
	case name == "." || name == "..":
		return errors.New("must not be a dot or two")
	case strings.ContainsFunc(name, notInTopics):
		return errors.New("has a character that Kafka's topics can't have: there are letters, digits, dots, underscores and hyphens")
	}
	return nil
}

// fixed is the topic's name where no message has a say in it.
func (t template) fixed() []string {
	if len(t.froms) > 0 {
		return []string{}
	}
	return t.texts
}

// isTopic says that the message's topic is the name, and nothing else.
func (t template) isTopic() bool {
	return len(t.froms) == 1 && t.froms[0] == "" && t.texts[0] == "" && t.texts[1] == ""
}

// name returns the topic of a message.
func (t template) name(m *sinks.Message) (string, error) {
	if len(t.froms) == 0 {
		return t.texts[0], nil
	}
	name, err := t.filled(m)
	if err != nil {
		return "", err
	}
	if err := checkTopic(name); err != nil {
		return "", fmt.Errorf("the topic %q %w", name, err)
	}
	return name, nil
}

func (t template) filled(m *sinks.Message) (string, error) {
	name := t.texts[0]
	for i, from := range t.froms {
		value := m.Topic
		if from != "" {
			value = m.Headers[from]
		}
		if value == "" {
			return "", fmt.Errorf("the header %q, which the topic is made of, is not there", from)
		}
		name += value + t.texts[i+1]
	}
	return name, nil
}
