package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
)

// lines reads lines of bounded length, and counts them.
type lines struct {
	from   *bufio.Reader
	most   int
	number int // number of the last line that was read, from 1
}

// newLines returns a reader that limits the length of a line. The limit leaves room for a payload of the
// given number of bytes, even if JSON escapes every byte, and for a message's other members.
func newLines(from io.Reader, payload int) *lines {
	const rest = 1 << 20
	return &lines{from: bufio.NewReaderSize(from, 64<<10), most: 6*payload + rest}
}

var byteOrderMark = []byte("\ufeff")

// next returns the next line that isn't blank; ok is false at the end.
func (l *lines) next() (line []byte, ok bool, err error) {
	for {
		line, more, err := l.read()
		if l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil || !more {
			return line, len(line) > 0, err
		}
	}
}

// read returns the next line, and whether more lines may follow.
func (l *lines) read() (line []byte, more bool, err error) {
	l.number++
	for {
		part, err := l.from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > l.most:
			return nil, false, fmt.Errorf("line %d has more than %d bytes: raise --max-payload to permit it", l.number, l.most)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return line, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("read line %d: %w", l.number, err)
		}
		return line, true, nil
	}
}

// members has a function for each member of a line's object. The function reads the
// member into a message. The last three members, which the stdout and
// file sinks add, are ignored, so the output of these sinks can be enqueued again.
var members = map[string]func(*outbox.Message, json.RawMessage) error{
	"topic":          func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.Topic) },
	"key":            func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.Key) },
	"message_id":     func(m *outbox.Message, raw json.RawMessage) error { return readText(raw, &m.ID) },
	"payload":        readPayload,
	"payload_base64": readBase64,
	"headers":        readHeaders,
	"available_at":   func(m *outbox.Message, raw json.RawMessage) error { return readTime(raw, &m.AvailableAt) },
	"expires_at":     func(m *outbox.Message, raw json.RawMessage) error { return readTime(raw, &m.ExpiresAt) },
	"priority":       readPriority,
	"attempt":        ignore,
	"sequence":       ignore,
	"created_at":     ignore,
}

// parseLine reads one line of JSON. Its errors name the member and don't show its
// value.
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
		if string(raw) == "null" {
			continue // null is the same as a missing member
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
		var raw json.RawMessage
		token, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&raw)
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		name := token.(string) // can't fail: Decode returns an error if the name isn't a string
		switch {
		case members[name] == nil:
			return nil, fmt.Errorf("has an unknown member %.50q: members are topic, key, payload or payload_base64,"+
				" headers, available_at, expires_at, priority and message_id", name)
		case object[name] != nil:
			return nil, fmt.Errorf("has %s twice", name)
		}
		object[name] = raw
	}
	if _, err := decoder.Token(); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has text after its object: write one message on each line")
	}
	return object, nil
}

// syntaxError returns an error with the position of the mistake. It may contain the
// library's error, which shows at most one character of the line.
func syntaxError(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("isn't valid JSON: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New("isn't valid JSON: it ends too early; a message must be on one line")
}

func ignore(*outbox.Message, json.RawMessage) error { return nil }

func readText(raw json.RawMessage, text *string) error {
	if json.Unmarshal(raw, text) != nil {
		return errors.New("must be a string")
	}
	return checkPairs(raw, *text)
}

// checkPairs refuses a \u escape that is half of a surrogate pair, because the
// decoder replaces it with U+FFFD, which changes the text.
func checkPairs(raw json.RawMessage, text string) error {
	meant := bytes.ContainsRune(raw, utf8.RuneError) || bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
	if strings.ContainsRune(text, utf8.RuneError) && !meant {
		return errors.New("has a \\u escape that is half of a surrogate pair")
	}
	return nil
}

// readPayload stores a string as its text, and any other value as its JSON.
func readPayload(m *outbox.Message, raw json.RawMessage) error {
	if raw[0] != '"' {
		m.Payload = bytes.Clone(raw)
		return nil
	}
	var text string
	if err := readText(raw, &text); err != nil {
		return err
	}
	m.Payload = []byte(text)
	return nil
}

func readBase64(m *outbox.Message, raw json.RawMessage) error {
	var text string
	if err := readText(raw, &text); err != nil {
		return err
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return errors.New("isn't base64 (the standard alphabet, padded)")
	}
	m.Payload = payload
	return nil
}

func readHeaders(m *outbox.Message, raw json.RawMessage) error {
	var headers map[string]*string
	if json.Unmarshal(raw, &headers) != nil {
		return errors.New("must be an object of strings")
	}
	m.Headers = make(map[string]string, len(headers))
	for name, value := range headers {
		if value == nil {
			return errors.New("must be an object of strings, and has a null")
		}
		if err := checkPairs(raw, name+*value); err != nil {
			return err
		}
		m.Headers[name] = *value
	}
	return nil
}

func readTime(raw json.RawMessage, at *time.Time) (err error) {
	var text string
	if err := readText(raw, &text); err != nil {
		return err
	}
	if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return errors.New("isn't a time such as 2026-01-31T12:00:00Z")
	}
	return nil
}

func readPriority(m *outbox.Message, raw json.RawMessage) error {
	if json.Unmarshal(raw, &m.Priority) != nil {
		return errors.New("must be a whole number between -32768 and 32767")
	}
	return nil
}
