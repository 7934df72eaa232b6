package main

import "testing"

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"two\nlines":          "two\nlines",
		"tried:\n\t127.0.0.1": "tried:\n 127.0.0.1",
		"\x1b[2J\a\xff":       "�[2J��",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
