package settings

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
)

// A template is filled with exactly the values of its placeholders, whatever braces they contain.
func FuzzTemplate(f *testing.F) {
	f.Add("https://{header:host}/{topic}?id={id}", "a", "b", "c")
	f.Add("{{topic}} {key}}}", "{id}", "{{", "}")
	f.Add("{", "", "", "")
	f.Fuzz(func(t *testing.T, text, topic, key, id string) {
		template, err := ParseTemplate(text)
		if err != nil {
			return
		}
		if len(template.Texts()) != template.Places()+1 {
			t.Fatalf("%q has %d texts around %d placeholders", text, len(template.Texts()), template.Places())
		}
		message := outbox.Message{Topic: topic, Key: key, ID: id, Headers: map[string]string{}}
		var values []string
		filled, err := template.Fill(&message, func(_ int, value string) (string, error) {
			values = append(values, value)
			return value, nil
		})
		if err != nil {
			if !strings.Contains(text, "{header:") {
				t.Fatal(err)
			}
			return
		}
		want := template.Texts()[0]
		for i, value := range values {
			want += value + template.Texts()[i+1]
		}
		if filled != want {
			t.Errorf("%q is filled as %q, want %q", text, filled, want)
		}
		if literal := strings.NewReplacer("{", "{{", "}", "}}").Replace(filled); template.Places() == 0 {
			if again, err := ParseTemplate(literal); err != nil || again.Texts()[0] != filled {
				t.Errorf("%q is parsed as %q, %v", literal, again.Texts(), err)
			}
		}
	})
}
