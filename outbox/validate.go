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
	maxYear       = 2999 // a later year probably comes from a wrong unit, such as milliseconds instead of seconds
	reservedNames = "rowrelay-"
)

// ErrInvalid is the error that every [ValidationError] matches with errors.Is.
var ErrInvalid = errors.New("invalid message")

// ValidationError reports which message of a [Writer.Write] is invalid, and which rule it
// breaks. Writing the same message again fails again.
type ValidationError struct {
	Index int    // the message's index in the call, from 0
	ID    string // the message's ID, empty if the caller gave none
	Field string // the field of Message, such as "Topic"
	Rule  string // the rule, such as "must not be empty"
}

// Error names the message, the field and the rule. It never contains a payload, a key or
// the value of a header.
func (e *ValidationError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("message %d: %s %s", e.Index, e.Field, e.Rule)
	}
	return fmt.Sprintf("message %d (id %s): %s %s", e.Index, shortened(e.ID), e.Field, e.Rule)
}

// Is makes the error match ErrInvalid.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// check returns an error for the first rule that m breaks, without setting the error's
// Index. It returns nil if m breaks no rule.
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

// The functions below return the rule that a value breaks, or "".

func brokenID(id string) string {
	if id != "" && !isUUID(id) {
		return "must be a UUID such as 019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60, and not all zeros; leave it empty to have one generated"
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

// brokenEncoding refuses U+0000 because PostgreSQL can't store it.
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
		return "must be of a type that can be encoded as JSON: " + m.unwritable.Error()
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
		return fmt.Sprintf("must have at most %d bytes in total (names and values), and have %d", maxHeaders, size)
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

// shortened quotes a caller's text for an error, and cuts it if it is long.
func shortened(text string) string {
	if len(text) > 64 {
		return fmt.Sprintf("%q…", text[:64])
	}
	return fmt.Sprintf("%q", text)
}
