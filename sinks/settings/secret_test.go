package settings_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestSecretIsNeverShown(t *testing.T) {
	t.Parallel()
	const text = "s3cret"
	options := struct{ Token settings.Secret }{text}
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, options.Token), fmt.Sprintf(verb, options), fmt.Sprintf(verb, &options))
	}
	encoded, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("made", "token", options.Token)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("made", "options", options)
	shown = append(shown, options.Token.String(), string(encoded), log.String())

	for _, s := range shown {
		if strings.Contains(s, text) || strings.Contains(s, fmt.Sprintf("%x", text)) {
			t.Errorf("the secret shows: %s", s)
		}
	}
	if got := options.Token.Reveal(); got != text {
		t.Errorf("Reveal returned %q", got)
	}
	if got := settings.Secret("").String(); got != "" {
		t.Errorf("an empty secret prints as %q", got)
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	redactor := settings.NewRedactor(`a/b"c d`, "tok", "token", "")
	for _, text := range []string{
		`raw a/b"c d`, `json a/b\"c d`, `slashes a\/b"c d`, `query a%2Fb%22c+d`, `path a%2Fb%22c%20d`,
		"base64 YS9iImMgZA==", "long token", "short tok",
	} {
		want := strings.Fields(text)[0] + " [secret]"
		if got := redactor.Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
	if got := (settings.Redactor{}).Redact("as it was"); got != "as it was" {
		t.Errorf("the zero Redactor returned %q", got)
	}
}
