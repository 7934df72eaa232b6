package kafka

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

func notInTopics(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// parseTopic reads the setting. Its errors complete "the topic …".
func parseTopic(text string) (sinks.Template, error) {
	t, err := sinks.ParseTemplate(text)
	switch {
	case err != nil:
		return t, err
	case strings.ContainsFunc(strings.Join(t.Texts(), ""), notInTopics):
		return t, errors.New("must have letters, digits, dots, underscores and hyphens only")
	case t.Places() == 0:
		return t, checkTopic(text)
	}
	return t, nil
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

// topicOf returns the topic of a message.
func (s *Sink) topicOf(m *sinks.Message) (string, error) {
	name, err := s.topic.Fill(m, sinks.NotEmpty)
	if err != nil {
		return "", fmt.Errorf("the topic %w", err)
	}
	if s.topic.Places() > 0 {
		if err := checkTopic(name); err != nil {
			return "", fmt.Errorf("the topic %q %w", name, err)
		}
	}
	return name, nil
}
