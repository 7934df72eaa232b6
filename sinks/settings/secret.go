package settings

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Secret is a text that must not be shown, such as a password or a token. Printing,
// logging or marshalling it gives "[secret]". Only [Secret.Reveal] returns the text.
type Secret string

const hidden = "[secret]"

// Reveal returns the secret's text.
func (s Secret) Reveal() string { return string(s) }

// String returns "[secret]", or "" if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// Format hides the secret from every verb of package fmt.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, s.String()) }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the secret from package slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Redactor removes secrets from text that other programs and libraries return, such as
// a server's answer that repeats the request, or an error of a client library. Its
// methods may be called concurrently. The zero Redactor removes nothing.
type Redactor struct {
	replacer *strings.Replacer
}

// NewRedactor returns a Redactor that removes the given secrets, both unescaped and in
// the escaped forms of JSON, URLs and base64. It ignores empty secrets.
func NewRedactor(secrets ...Secret) Redactor {
	var forms []string
	for _, secret := range secrets {
		if secret != "" {
			forms = append(forms, escapedForms(secret.Reveal())...)
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // the longest match wins
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, hidden)
	}
	return Redactor{replacer: strings.NewReplacer(pairs...)}
}

// Redact returns the text with every secret replaced by "[secret]".
func (r Redactor) Redact(text string) string {
	if r.replacer == nil {
		return text
	}
	return r.replacer.Replace(text)
}

func escapedForms(secret string) []string {
	quoted, _ := json.Marshal(secret) // a string always marshals
	return []string{
		secret,
		string(quoted[1 : len(quoted)-1]),
		strings.ReplaceAll(secret, "/", `\/`),
		url.QueryEscape(secret),
		url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)),
	}
}

// Present prepares a text, such as a server's answer, for an operator's screen. It
// hides secrets, replaces characters that can't be printed with spaces, and joins the
// lines. It cuts a text that is longer than the given number of bytes, and adds an ellipsis.
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
