package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
)

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func passOver(*outbox.Message, json.RawMessage) error { return nil }

func readText(raw json.RawMessage, text *string) error {
	if json.Unmarshal(raw, text) != nil {
		return errors.New("must be a string")
	}
	return checkPairs(raw, *text)
}

// checkPairs refuses a \u escape that is half of a surrogate pair: the decoder
// puts U+FFFD in its place, and so changes the text.
func checkPairs(raw json.RawMessage, text string) error {
	meant := bytes.ContainsRune(raw, utf8.RuneError) || bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`))
	if strings.ContainsRune(text, utf8.RuneError) && !meant {
		return errors.New("has a \\u escape that is half of a pair")
	}
	return nil
}

// readPayload takes a string as text, and anything else as the JSON that it is.
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

func readTime(m *outbox.Message, raw json.RawMessage) error {
	var text string
	if err := readText(raw, &text); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("isn't a time such as 2026-01-31T12:00:00Z")
	}
	m.AvailableAt = at
	return nil
}

func readPriority(m *outbox.Message, raw json.RawMessage) error {
	if json.Unmarshal(raw, &m.Priority) != nil {
		return errors.New("must be a whole number between -32768 and 32767")
	}
	return nil
}
