package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The attributes that the plug-in adds.
const (
	idAttribute      = "rowrelay-message-id"
	topicAttribute   = "rowrelay-topic"
	keyAttribute     = "rowrelay-key"
	payloadAttribute = "rowrelay-payload" // "null" if the payload is NULL
)

// Pub/Sub's limits for messages.
const (
	mostAttributes = 100
	longestName    = 256
	longestValue   = 1024
	longestKey     = 1024
)

// topicOf returns the name of the topic of a message.
func (s *sink) topicOf(m *sinks.Message) (string, error) {
	id, err := s.topic.Fill(&m.Message, settings.NotEmpty)
	if err == nil && s.topic.Places() > 0 {
		err = checkTopic(id)
	}
	if err != nil {
		return "", settings.PrefixError("topic", err)
	}
	return "projects/" + s.project + "/topics/" + id, nil
}

// encode converts a message. Its errors mean that Pub/Sub can't carry the message.
func (s *sink) encode(m *sinks.Message) (*pubsubpb.PubsubMessage, error) {
	attributes := make(map[string]string, len(m.Headers)+4)
	for name, value := range m.Headers {
		if sinks.ReservedHeader(name) {
			return nil, fmt.Errorf("the header %q belongs to the plug-in and can't be set", name)
		}
		if !utf8.ValidString(name) || name == "" || len(name) > longestName || strings.HasPrefix(name, "goog") {
			return nil, fmt.Errorf("the header %q has a name that Pub/Sub doesn't allow", name)
		}
		attributes[name] = value
	}
	attributes[idAttribute] = m.ID
	if m.Topic != "" {
		attributes[topicAttribute] = m.Topic
	}
	if m.Key != "" {
		attributes[keyAttribute] = m.Key
	}
	if m.Payload == nil {
		attributes[payloadAttribute] = "null"
	}
	for name, value := range attributes {
		if !utf8.ValidString(value) || len(value) > longestValue {
			return nil, fmt.Errorf("the attribute %s has a value that is not UTF-8 or is longer than %d bytes", name, longestValue)
		}
	}
	if len(attributes) > mostAttributes {
		return nil, fmt.Errorf("the message has more than %d headers", mostAttributes)
	}
	made := &pubsubpb.PubsubMessage{Data: m.Payload, Attributes: attributes}
	if s.ordering {
		if len(m.Key) > longestKey {
			return nil, errors.New("the key is longer than an ordering key may be")
		}
		made.OrderingKey = m.Key
	}
	return made, nil
}
