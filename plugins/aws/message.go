package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
)

// The attributes that the plug-in adds.
const (
	idAttribute      = "rowrelay-message-id"
	topicAttribute   = "rowrelay-topic"
	keyAttribute     = "rowrelay-key"
	payloadAttribute = "rowrelay-payload" // null, empty or base64 if the body is not the payload
	headersAttribute = "rowrelay-headers" // a JSON object of the headers that are not attributes
	mostAttributes   = 10
)

// entry is a message as SQS and SNS accept it.
type entry struct {
	body       string
	attributes map[string]string
	group      string // "" if the destination is not a FIFO queue or topic
	dedup      string // "" if the destination is not a FIFO queue or topic
	bytes      int    // the size that counts towards the limits of requests and messages
}

// encode converts a message. Its errors mean that SQS and SNS can't carry the message.
func encode(m *sinks.Message, fifo bool) (*entry, error) {
	e := &entry{attributes: map[string]string{idAttribute: m.ID}}
	if m.Topic != "" {
		e.attributes[topicAttribute] = m.Topic
	}
	if m.Key != "" {
		e.attributes[keyAttribute] = m.Key
	}
	for name, value := range e.attributes {
		if value == "" || !isText(value) {
			return nil, fmt.Errorf("%s can't be an attribute: it is empty, not UTF-8, or contains a control character", strings.TrimPrefix(name, "rowrelay-"))
		}
	}
	e.setBody(m.Payload)
	if err := e.setHeaders(m.Headers); err != nil {
		return nil, err
	}
	if fifo {
		e.group, e.dedup = identifier(m.ID), identifier(m.ID)
		if m.Key != "" {
			e.group = identifier(m.Key)
		}
		if replay := m.Headers[sinks.ReplayedHeader]; replay != "" { // a replay's copies have the ids of the originals
			e.dedup = identifier(m.ID + "/" + replay)
		}
	}
	e.bytes = len(e.body)
	for name, value := range e.attributes {
		e.bytes += len(name) + len(dataType) + len(value)
	}
	return e, nil
}

const dataType = "String" // the type of all attributes

// setBody sets the body, which must be text and not empty.
func (e *entry) setBody(payload []byte) {
	switch {
	case payload == nil:
		e.body, e.attributes[payloadAttribute] = "null", "null"
	case len(payload) == 0:
		e.body, e.attributes[payloadAttribute] = "empty", "empty"
	case isText(string(payload)):
		e.body = string(payload)
	default:
		e.body, e.attributes[payloadAttribute] = base64.StdEncoding.EncodeToString(payload), "base64"
	}
}

// setHeaders makes an attribute of each header, in the order of the names. The headers that can't be attributes, or
// for which there is no room, share one attribute.
func (e *entry) setHeaders(headers map[string]string) error {
	names, rest := slices.Sorted(maps.Keys(headers)), map[string]string{}
	for _, name := range names {
		if sinks.ReservedHeader(name) {
			return fmt.Errorf("the header %q belongs to the plug-in and can't be set", name)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(headers[name]) {
			return errors.New("a header is not UTF-8")
		}
		if !isName(name) || headers[name] == "" || !isText(headers[name]) {
			rest[name] = headers[name]
		}
	}
	room := mostAttributes - len(e.attributes)
	if len(headers) > room || len(rest) > 0 {
		room-- // for the attribute with the remaining headers
	}
	for _, name := range names {
		if _, odd := rest[name]; odd {
			continue
		}
		if room == 0 {
			rest[name] = headers[name]
			continue
		}
		e.attributes[name] = headers[name]
		room--
	}
	if len(rest) == 0 {
		return nil
	}
	text, err := json.Marshal(rest)
	if err != nil || !isText(string(text)) {
		return errors.New("a header has a character that an attribute can't contain")
	}
	e.attributes[headersAttribute] = string(text)
	return nil
}

// isText reports whether a text has only the characters that bodies and attributes may contain.
func isText(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff
	})
}

var attributeCharacters = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)

// isName reports whether an attribute may have this name.
func isName(name string) bool {
	lower := strings.ToLower(name)
	return attributeCharacters.MatchString(name) && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..") &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.")
}

var identifierCharacters = regexp.MustCompile(`^[!-~]{1,128}$`) // letters, digits and punctuation

// identifier returns a group id or deduplication id: the text, or its SHA-256 if the text can't be an id.
func identifier(text string) string {
	if identifierCharacters.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
