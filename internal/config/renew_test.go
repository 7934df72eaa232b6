package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A sink's state changes if its settings change, or if a certificate file in its settings or its URL changes.
func TestStateOfASink(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	for name, sink := range map[string]Sink{
		"settings": {Type: "http", Settings: map[string]any{"url": "https://localhost", "ca_file": ca}},
		"url":      {URL: "kafka://localhost/t?ca_file=" + ca},
	} {
		write(t, ca, "one")
		before := sink.State()
		if !sink.Renewable() || sink.State() != before {
			t.Errorf("%s: nothing has changed", name)
		}
		write(t, ca, "two")
		if sink.State() == before {
			t.Errorf("%s: the file has changed", name)
		}
	}
	if (Sink{Type: "http", Settings: map[string]any{"url": "https://localhost", "bearer_token": "t0ken"}}).Renewable() {
		t.Error("a sink without files is renewable")
	}
	one := Sink{Settings: map[string]any{"bearer_token": "hunter2"}}.State()
	if one == (Sink{Settings: map[string]any{"bearer_token": "hunter3"}}).State() || strings.Contains(one, "hunter2") {
		t.Error("two different settings have the same state, or the state contains a secret")
	}
}

// Current returns a new login from the file. If the file names another database, Current ignores it and Moved reports it.
func TestADatabaseInAFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		before, after  string
		current, moved bool
	}{
		{"postgres://a:1@h/d?sslmode=disable", "postgres://a:2@h/d?sslmode=disable", true, false},
		{"postgres://a:1@h/d", "postgres://b:2@h/d\n", true, false},
		{"postgres:///d?host=h&user=a&password=1", "postgres:///d?host=h&user=b&password=2", true, false},
		{"sqlserver://h?database=d&user+id=a&password=1", "sqlserver://h?database=d&user+id=b&password=2", true, false},
		{"mysql://a:1@h/d", "mysql://a:1@other/d", false, true},
		{"mysql://a:1@h/d", "mysql://a:1@h/other", false, true},
		{"mysql://a:1@h/d", "mariadb://a:1@h/d", false, true},
		{"sqlite:a.db", "sqlite:b.db", false, true},
		{"mysql://a:1@h/d", "", false, false},
		{"mysql://a:1@h/d", "mysql://a:1@", false, false},
	} {
		file := filepath.Join(t.TempDir(), "url")
		before, err := ParseDatabase(test.before)
		if err != nil {
			t.Fatal(err)
		}
		before.from = origin{path: "database", file: file}
		write(t, file, test.after)
		want := test.before
		if test.current {
			want = strings.TrimSpace(test.after)
		}
		current, _ := before.Current(t.Context())
		if got := current.Secret(); strings.TrimPrefix(got, "sqlite:") != strings.TrimPrefix(want, "sqlite:") || before.Moved() != test.moved {
			t.Errorf("the file has %s, then %s: Current returns %s, Moved %v", test.before, test.after, got, before.Moved())
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
