package config

import (
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// Each setting accepts the values at its limits, and refuses the values just outside.
func TestLimits(t *testing.T) {
	t.Parallel()
	source := func(name string) func(string) error {
		return func(text string) error { return new(Source).Set(name, text) }
	}
	sink := func(name string) func(string) error {
		return func(text string) error { return new(Sink).Set(name, text) }
	}
	for name, test := range map[string]struct {
		set      func(string) error
		on, over []string
	}{
		"lease":               {source("lease"), []string{"1s", "1h", "60m", "1000ms"}, []string{"999ms", "0", "-1s", "1h1ns", "5", "", "1 s"}},
		"poll":                {source("poll"), []string{"1ms", "1m"}, []string{"999us", "0s", "60001ms"}},
		"retention":           {source("retention"), []string{"0", "0s", "0d", "1s", "3650d"}, []string{"999ms", "-1s", "3651d", "99999d", "100000d", "forever"}},
		"drain_timeout":       {source("drain_timeout"), []string{"1ms", "1h"}, []string{"0", "999us", "3601s"}},
		"longest_transaction": {source("longest_transaction"), []string{"1s", "24h"}, []string{"0", "999ms", "86401s", ""}},
		"listen on":           {source("listen"), []string{"on", "off"}, []string{"", "true", "On"}},
		"claim":               {source("claim"), []string{"lanes", "rows"}, []string{"", "Lanes", "lane"}},
		"pick":                {source("pick"), []string{"oldest", "newest", "priority"}, []string{"", "any"}},
		"table": {source("table"), []string{"a", strings.Repeat("a", 40), "s.t", "Ab_1"},
			[]string{"", strings.Repeat("a", 41), "1a", "a b", "a;b", "a.b.c", `"a"`, "ä"}},
		"batch":             {sink("batch"), []string{"1", "10000"}, []string{"0", "10001", "-1", "1.5", "x", ""}},
		"batch_bytes":       {sink("batch_bytes"), []string{"1KiB", "1024", "1024B", "256MiB"}, []string{"1023", "257MiB", "1TiB", "-1", "MiB", "0x10", "9999999999GiB"}},
		"workers":           {sink("workers"), []string{"1", "256"}, []string{"0", "257"}},
		"buffer":            {sink("buffer"), []string{"1", "100000"}, []string{"0", "100001"}},
		"buffer_bytes":      {sink("buffer_bytes"), []string{"1KiB", "4GiB", "10 MB", "10kB"}, []string{"1023B", "5GiB", "4294967297"}},
		"timeout":           {sink("timeout"), []string{"10ms", "1h"}, []string{"9ms", "3601s"}},
		"max_attempts":      {sink("max_attempts"), []string{"1", "1000000", "unlimited"}, []string{"0", "-1", "1000001", "never"}},
		"breaker_threshold": {sink("breaker_threshold"), []string{"1", "100000", "never"}, []string{"0", "-1", "100001", "unlimited"}},
		"judge_alone_after": {sink("judge_alone_after"), []string{"0s", "10ms", "7d", "never"}, []string{"9ms", "-1s", "169h", "ever"}},
		"on_park":           {sink("on_park"), []string{"continue", "hold"}, []string{"", "Hold", "wait"}},
		"listen": {func(text string) error { return new(Admin).Set("listen", text) },
			[]string{"8321", ":8321", "0.0.0.0:1", "[::1]:65535", "localhost:0"}, []string{"", "x", ":65536", "a:b", "1.2.3.4", "h:-1", "a:1:2"}},
		"level": {func(text string) error { return new(Log).Set("level", text) },
			[]string{"debug", "info", "warn", "error"}, []string{"", "INFO", "info+1", "trace"}},
		"format": {func(text string) error { return new(Log).Set("format", text) }, []string{"text", "json"}, []string{"", "xml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range test.on {
				if err := test.set(text); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
			for _, text := range test.over {
				if err := test.set(text); err == nil {
					t.Errorf("%q is taken", text)
				}
			}
		})
	}
}

func TestSetReadsLikeTheFile(t *testing.T) {
	t.Parallel()
	var s Source
	for name, text := range map[string]string{"database": "sqlite:a.db", "retention": "0", "lease": "2m"} {
		if err := s.Set(name, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.Retention != relay.KeepNothing || s.Lease != 2*time.Minute || s.Database.Secret() != "a.db" {
		t.Errorf("got %+v", s)
	}
	if err := s.Set("colour", "red"); err == nil {
		t.Error("an unknown setting is taken")
	}
	err := s.Set("lease", "500ms")
	if err == nil || err.Error() != `"500ms" must be at least 1s` {
		t.Errorf("got %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"a": true, "A.b-c_9": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a b": false, strings.Repeat("a", 64): false, "ä": false, "a/b": false,
	} {
		if got := name.MatchString(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"database", "table", "claim", "a"}
	for word, want := range map[string]string{
		"databse": "database", "Table": "table", "tables": "table", "clam": "claim", "b": "", "colour": "", "": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// A name for an address leads to the known name for one, even if the names aren't similar.
func TestSuggest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		known []string
		want  string
	}{
		{"url", []string{"username", "hosts"}, ": did you mean hosts?"},
		{"bootstrap_servers", []string{"brokers", "topic"}, ": did you mean brokers?"},
		{"tablee", []string{"hosts", "table"}, ": did you mean table?"},
		{"url", []string{"path"}, ": known: path"},
		{"colour", []string{"hosts", "table"}, ": known: hosts, table"},
	} {
		if got := suggest(test.name, "known:", test.known); got != test.want {
			t.Errorf("%s of %v: got %q, want %q", test.name, test.known, got, test.want)
		}
	}
}
