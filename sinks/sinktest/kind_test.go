package sinktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func referenceKind(err func(settings.Values) error) sinks.Kind {
	return sinks.Kind{
		Name: "reference",
		Fields: []settings.Field{
			{Name: "token", Type: settings.TypeSecret, Help: "the password"},
			{Name: "headers", Type: settings.TypeSecretMap, Help: "more of them"},
		},
		New: func(s settings.Values) (sinks.Sink, error) { return &reference{to: &destination{}}, err(s) },
	}
}

var referenceSettings = map[string]any{"token": "t0ken", "headers": map[string]any{"X-A": "h3ader"}}

func noError(settings.Values) error { return nil }

func newRegistry(t *testing.T, kind sinks.Kind) *sinks.Registry {
	t.Helper()
	registry, err := sinks.NewRegistry(kind)
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

func TestKindMakes(t *testing.T) {
	t.Parallel()
	good, bad := referenceKind(noError), referenceKind(func(settings.Values) error { return errors.New("no") })
	if v := recordKind(func(tb testing.TB) { makes(tb, newRegistry(t, good), good, []map[string]any{referenceSettings}) }); v.failed {
		t.Errorf("a valid kind fails: %s", v.log)
	}
	if v := recordKind(func(tb testing.TB) { makes(tb, newRegistry(t, bad), bad, []map[string]any{referenceSettings}) }); !v.failed {
		t.Error("a kind that makes no sink passes")
	}
}

func TestKindHidesSecrets(t *testing.T) {
	t.Parallel()
	good := referenceKind(noError)
	bad := referenceKind(noError)
	bad.Fields[1].Check = func(value any) error {
		if secret, there := value.(map[string]settings.Secret)["a name"]; there {
			return fmt.Errorf("has a wrong name for %s", secret.Reveal())
		}
		return nil
	}
	token, headers := map[string]any{"token": "t0ken"}, map[string]any{"headers": map[string]any{"X-A": "h3ader"}}
	tests := []struct {
		name     string
		kind     sinks.Kind
		settings []map[string]any
		failed   bool
	}{
		{"good", good, []map[string]any{referenceSettings}, false},
		{"good in two parts", good, []map[string]any{token, headers}, false},
		{"settings without one of the secrets", good, []map[string]any{token}, true},
		{"bad", bad, []map[string]any{referenceSettings}, true},
	}
	for _, test := range tests {
		v := recordKind(func(tb testing.TB) { hidesSecrets(tb, newRegistry(t, test.kind), test.kind, test.settings) })
		if v.failed != test.failed {
			t.Errorf("%s: failed is %v: %s", test.name, v.failed, v.log)
		}
	}
}

func TestKindIsDocumented(t *testing.T) {
	t.Parallel()
	kind := referenceKind(noError)
	table := "\n" + kind.Markdown() + "\n"
	tests := []struct {
		name, text string
		failed     bool
	}{
		{"fresh", "# Title\n" + tableStart + table + tableEnd + "more\n", false},
		{"stale", "# Title\n" + tableStart + "\n" + strings.Replace(table, "token", "old", 1) + tableEnd, true},
		{"no table", "# Title\n", true},
		{"no end", tableStart + table, true},
	}
	for _, test := range tests {
		path := filepath.Join(t.TempDir(), "README.md")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if v := recordKind(func(tb testing.TB) { documented(tb, kind, path) }); v.failed != test.failed && os.Getenv("UPDATE_GOLDEN") == "" {
			t.Errorf("%s: failed is %v: %s", test.name, v.failed, v.log)
		}
	}
}

func recordKind(f func(testing.TB)) verdict {
	r := &recorder{}
	r.run(func() { f(r) })
	return r.verdict
}
