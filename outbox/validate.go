package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxText       = 255 // bytes of a topic, a key or a header's name
	maxHeaders    = 16 << 10
	minYear       = 1970
	maxYear       = 2999 // later ones come from a mistaken unit
	reservedNames = "rowrelay-"
)

// ErrInvalid is what every [ValidationError] matches with errors.Is.
var ErrInvalid = errors.New("invalid message")

// ValidationError says which message of a [Writer.Write] breaks which rule.
// Writing the same message again will fail again.
type ValidationError struct {
	Index int    // of the message in the call, from 0
	ID    string // of the message, if it was given one
	Field string // of Message, such as "Topic"
	Rule  string // such as "must not be empty"
}

// Error never shows a payload, a key or a header's value.
func (e *ValidationError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("message %d: %s %s", e.Index, e.Field, e.Rule)
	}
	return fmt.Sprintf("message %d (id %s): %s %s", e.Index, shortened(e.ID), e.Field, e.Rule)
}

// Is makes the error match ErrInvalid.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// check returns an error without an index, or nil.
func (w *Writer) check(m Message) *ValidationError {
	for _, field := range [...]struct{ name, broken string }{
		{"ID", brokenID(m.ID)},
		{"Topic", brokenTopic(m.Topic)},
		{"Key", brokenText(m.Key)},
		{"Payload", w.brokenPayload(m)},
		{"Headers", brokenHeaders(m.Headers)},
		{"AvailableAt", brokenTime(m.AvailableAt)},
		{"ExpiresAt", brokenTime(m.ExpiresAt)},
	} {
		if field.broken != "" {
			return &ValidationError{ID: m.ID, Field: field.name, Rule: field.broken}
		}
	}
	return nil
}

// The functions below return the rule that a value breaks, empty if none.

func brokenID(id string) string {
	if id != "" && !isUUID(id) {
		return "must be a UUID such as 019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60, and not the one of zeros only; leave it empty to have one made"
	}
	return ""
}

func brokenTopic(topic string) string {
	if topic == "" {
		return "must not be empty"
	}
	return brokenText(topic)
}

func brokenText(text string) string {
	if len(text) > maxText {
		return fmt.Sprintf("must have at most %d bytes, and has %d", maxText, len(text))
	}
	return brokenEncoding(text)
}

// brokenEncoding: PostgreSQL can't store U+0000.
func brokenEncoding(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.Contains(text, "\x00"):
		return "must not contain U+0000"
	}
	return ""
}

func (w *Writer) brokenPayload(m Message) string {
	switch {
	case m.unwritable != nil && m.Payload == nil:
		return "must be of a type that can be written as JSON: " + m.unwritable.Error()
	case len(m.Payload) > w.maxPayload:
		return fmt.Sprintf("must have at most %d bytes, and has %d", w.maxPayload, len(m.Payload))
	}
	return ""
}

func brokenHeaders(headers map[string]string) string {
	size := 0
	for name, value := range headers {
		if broken := brokenHeader(name, value); broken != "" {
			return broken
		}
		size += len(name) + len(value)
	}
	if size > maxHeaders {
		return fmt.Sprintf("must have at most %d bytes, names and values together, and have %d", maxHeaders, size)
	}
	return ""
}

func brokenHeader(name, value string) string {
	if name == "" {
		return "must not have an empty name"
	}
	if broken := brokenHeaderName(name); broken != "" {
		return fmt.Sprintf("name %s %s", shortened(name), broken)
	}
	if broken := brokenEncoding(value); broken != "" {
		return fmt.Sprintf("value of %s %s", shortened(name), broken)
	}
	return ""
}

func brokenHeaderName(name string) string {
	if broken := brokenText(name); broken != "" {
		return broken
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return "must not contain control characters"
	}
	if len(name) >= len(reservedNames) && strings.EqualFold(name[:len(reservedNames)], reservedNames) {
		return fmt.Sprintf("must not begin with %s, which is reserved", reservedNames)
	}
	return ""
}

func brokenTime(at time.Time) string {
	year := at.UTC().Year()
	if !at.IsZero() && (year < minYear || year > maxYear) {
		return fmt.Sprintf("must be in the years %d to %d, and is in %d", minYear, maxYear, year)
	}
	return ""
}

// shortened quotes what a caller gave, which may be anything.
func shortened(text string) string {
	if len(text) > 64 {
		return fmt.Sprintf("%q…", text[:64])
	}
	return fmt.Sprintf("%q", text)
}
