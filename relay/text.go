package relay

import (
	"strings"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
)

// Texts of sinks' answers, for the log and for rows.

// describe returns an outcome's text, which is stored as the row's last error.
func describe(outcome sinks.Outcome) string {
	return shorten(strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": "), 1000)
}

// loggable returns the text of an outcome for the log. It removes the destination's response after a status code, since the
// response may repeat a payload.
func loggable(outcome *sinks.Outcome) string {
	cause, detail := "", shorten(outcome.Detail, 4000)
	if outcome.Reason == sinks.ReasonExhausted { // the detail consists of the last failure's reason and detail
		if reason, rest, found := strings.Cut(detail, ": "); found {
			cause, detail = reason+": ", rest
		}
	}
	if len(detail) > 3 && strings.Trim(detail[:3], "0123456789") == "" {
		detail, _, _ = strings.Cut(detail, ": ")
	}
	return cause + detail
}

// shorten cuts a text to at most n bytes of valid UTF-8. It replaces NUL bytes, which some databases can't store.
func shorten(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// unwritableText replaces an error text that the database can't store.
const unwritableText = "(the database refused to store this error's text; the relay's log may have it)"
