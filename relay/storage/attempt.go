package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of an AttemptLog.
const (
	MostAttempts   = 20   // the maximum number of attempts
	MostAttemptLog = 4000 // the maximum length of its text, in bytes
)

// Attempt is a failed attempt to deliver a message.
type Attempt struct {
	At         time.Time `json:"at"`             // when the attempt began, on the database's clock as the relay estimates it; in UTC
	Relay      string    `json:"relay"`          // the relay or consumer that made the attempt
	Sink       string    `json:"sink,omitempty"` // empty for a consumer
	Answer     string    `json:"answer"`         // why it failed, as in last_error
	DurationMS int64     `json:"duration_ms"`    // how long the sink took for the batch that contained the message, in milliseconds
}

// AttemptLog has a message's last failed attempts, the oldest first. A table stores it as text with the
// row, so that it survives restarts and takeovers. The log is deleted when the message is delivered.
type AttemptLog []Attempt

// With appends attempts to a copy of the log and returns it. It keeps the last [MostAttempts] attempts. If
// their text would be longer than [MostAttemptLog], it shortens the answers of all attempts but the last
// one, and then drops the oldest attempts.
func (l AttemptLog) With(more ...Attempt) AttemptLog {
	log := append(append(make(AttemptLog, 0, len(l)+len(more)), l...), more...)
	log = log[max(0, len(log)-MostAttempts):]
	for i := range log {
		at := log[i].At.UTC().Truncate(time.Millisecond)
		if at.Year() < 0 || at.Year() > 9999 { // can't be written as JSON; the column was changed by hand
			at = time.Time{}
		}
		log[i].At, log[i].Answer = at, strings.ReplaceAll(log[i].Answer, "\x00", "\uFFFD") // PostgreSQL's jsonb rejects an escaped NUL
	}
	tooLong := func() bool { return len(log.Text()) > MostAttemptLog }
	if !tooLong() {
		return log
	}
	const brief = 64 // the length of a shortened text, in bytes
	for i := range len(log) - 1 {
		log[i].Answer = cut(log[i].Answer, brief)
	}
	for len(log) > 1 && tooLong() {
		log = log[1:]
	}
	for tooLong() { // escaping can make the text of a single attempt six times as long
		last := &log[0]
		last.Relay, last.Sink, last.Answer = cut(last.Relay, brief), cut(last.Sink, brief), cut(last.Answer, len(last.Answer)/2)
	}
	return log
}

// cut cuts a text to at most n bytes of valid UTF-8.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Text returns the log as tables store it: a JSON array in ASCII, or an empty string if the log is
// empty. Every database can store ASCII, whatever its character set is.
func (l AttemptLog) Text() string {
	if len(l) == 0 {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil { // a time has a year that can't be written as JSON
		return ""
	}
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x7f }) {
		return string(text)
	}
	var ascii strings.Builder
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			ascii.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return ascii.String()
}

// ParseAttemptLog parses the text of an AttemptLog. For a text that it can't parse, such as one that was
// changed by hand, it returns an empty log.
func ParseAttemptLog(text string) AttemptLog {
	var log AttemptLog
	if text == "" || json.Unmarshal([]byte(text), &log) != nil {
		return nil
	}
	return log
}
