package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
)

// members says how each member of a line's object is read into a message. The
// last three are those that the stdout and file sinks add: what they wrote can
// be enqueued again.
var members = map[string]func(*outbox.Message, json.RawMessage) error{
	"topic":          func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.Topic) },
	"key":            func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.Key) },
	"message_id":     func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.ID) },
	"payload":        readPayload,
	"payload_base64": readBase64,
	"headers":        readHeaders,
	"available_at":   readTime,
	"priority":       readPriority,
	"attempt":        passOver,
	"sequence":       passOver,
	"created_at":     passOver,
}

// parseLine reads one line of JSON. Its errors name the member, and show
// nothing of what is in it.
func parseLine(line []byte) (outbox.Message, error) {
	var m outbox.Message
	if !utf8.Valid(line) {
		return m, errors.New("isn't UTF-8: give a binary payload as payload_base64")
	}
	object, err := parseObject(line)
	if err != nil {
		return m, err
	}
	if object["payload"] != nil && object["payload_base64"] != nil {
		return m, errors.New("has both payload and payload_base64: leave one out")
	}
	for name, raw := range object {
		if isNull(raw) {
			continue // as if it weren't there
		}
		if err := members[name](&m, raw); err != nil {
			return m, fmt.Errorf("%s %w", name, err)
		}
	}
	return m, nil
}

// parseObject splits an object into its members. Unlike json.Unmarshal it
// refuses unknown names, names in another case, and the same name twice.
func parseObject(line []byte) (map[string]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New(`isn't a JSON object, such as {"topic": "orders", "payload": "hello"}`)
	}
	object := map[string]json.RawMessage{}
	for decoder.More() {
		name, raw, err := parseMember(decoder)
		switch {
		case err != nil:
			return nil, err
		case members[name] == nil:
			return nil, fmt.Errorf("has the member %.50q, which no message has: it may have topic, key, payload or payload_base64,"+
				" headers, available_at, priority and message_id", name)
		case object[name] != nil:
			return nil, fmt.Errorf("has %s twice", name)
		}
		object[name] = raw
	}
	if _, err := decoder.Token(); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something behind its object: write one message a line")
	}
	return object, nil
}

func parseMember(decoder *json.Decoder) (name string, raw json.RawMessage, err error) {
	token, err := decoder.Token()
	if err != nil {
		return "", nil, syntaxError(err)
	}
	if err := decoder.Decode(&raw); err != nil {
		return "", nil, syntaxError(err)
	}
	return token.(string), raw, nil // Decode fails behind a name that is none
}

// syntaxError says where the JSON is wrong; the library's text would show a
// character of it at most.
func syntaxError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("isn't valid JSON: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New("isn't valid JSON: it ends too early; a message must be on one line")
}
