package settings_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	m := &outbox.Message{ID: "i", Topic: "t", Key: "k", Headers: map[string]string{"x-a": "{topic}", "a b": "c"}}
	for text, want := range map[string]string{
		"":                                   "",
		"plain":                              "plain",
		"{topic}":                            "<0 t>",
		"{key}{id}":                          "<0 k><1 i>",
		"a{header:x-a}b{header:a b}c{topic}": "a<0 {topic}>b<1 c>c<2 t>",
		"{header:none}":                      "needs the message's header none, which is missing",
		"{header:X-A}":                       "needs the message's header X-A, which is missing",
		"{id} {header:a b}{key}bad":          "<0 i> <1 c><2 k>bad",
		"{{topic}} {{{key}}}":                "{topic} {<0 k>}",
	} {
		template, err := settings.ParseTemplate(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := template.Fill(m, func(place int, value string) (string, error) { return fmt.Sprintf("<%d %s>", place, value), nil })
		if err != nil {
			got = err.Error()
		}
		if got != want || len(template.Texts()) != template.Places()+1 {
			t.Errorf("%q: %q, want %q; %d texts for %d places", text, got, want, len(template.Texts()), template.Places())
		}
	}
}

func TestInvalidTemplates(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{", "}", "{}", "{nothing}", "{Topic}", "{header:}", "{header}", "{{topic}", "{topic", "{header:a{b}"} {
		if _, err := settings.ParseTemplate(text); err == nil || !strings.Contains(err.Error(), "unknown placeholder") {
			t.Errorf("%q: %v", text, err)
		}
	}
	template, err := settings.ParseTemplate("{topic}")
	if err != nil {
		t.Fatal(err)
	}
	m := &outbox.Message{Topic: "t"}
	_, err = template.Fill(m, func(int, string) (string, error) { return "", errors.New("is odd") })
	if err == nil || err.Error() != "can't contain the message's topic, which is odd" {
		t.Errorf("an escape that fails: %v", err)
	}
	m.Topic = ""
	if text, err := template.Fill(m, nil); text != "" || err != nil {
		t.Errorf("without an escape: %q, %v", text, err)
	}
	if _, err := template.Fill(m, settings.NotEmpty); err == nil || err.Error() != "can't contain the message's topic, which is empty" {
		t.Errorf("an empty value: %v", err)
	}
}

func TestWithTopicKeepsTheOtherPlaceholders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "a": "a", "a.{topic}": "a.orders", "{topic}{key}.{header:a b}!": "orders{key}.{header:a b}!", "{{topic}}": "{topic}"} {
		template, err := settings.ParseTemplate(text)
		if got := template.WithTopic("orders"); got != want || err != nil {
			t.Errorf("%q: %q, want %q; %v", text, got, want, err)
		}
	}
}
