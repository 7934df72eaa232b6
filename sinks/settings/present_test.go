package settings_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestPresent(t *testing.T) {
	t.Parallel()
	redactor := settings.NewRedactor("s3cret/token")
	tests := map[string]string{
		"":                                 "",
		" \r\n\t ":                         "",
		"one\ntwo\r\n\tthree":              "one two three",
		"a\x00b\x1b[31mred\xff":            "a b [31mred",
		"12345678901234567890":             "12345678901234567890",
		"123456789012345678901":            "12345678901234567890…",
		"x" + strings.Repeat("ü", 10):      "x" + strings.Repeat("ü", 9) + "…",
		strings.Repeat("🛒", 6):             strings.Repeat("🛒", 5) + "…",
		"the token: s3cret/token":          "the token: [secret]",
		`{"t":"s3cret\/token"}`:            `{"t":"[secret]"}`,
		strings.Repeat(" ", 99) + "s3cret": "s3cret",
	}
	for text, want := range tests {
		if got := redactor.Present(text, 20); got != want || !utf8.ValidString(got) {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := (settings.Redactor{}).Present("ü", 1); got != "…" {
		t.Errorf("half a character is shown as %q", got)
	}
}
