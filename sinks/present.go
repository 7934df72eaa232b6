package sinks

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Present makes text from elsewhere, such as a server's answer, fit for an
// operator's screen: without the secrets, printable, on one line, and at most so
// many bytes long, with an ellipsis where it was longer.
func (r Redactor) Present(text string, most int) string {
	text = strings.Map(printable, r.Redact(text))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

func printable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return ' '
	}
	return r
}
