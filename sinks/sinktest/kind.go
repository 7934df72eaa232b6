package sinktest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Kind checks the description of a kind of sink: a registry accepts it; a sink can be made from each
// map of valid settings; errors about wrong settings and the sink's destination show no secret; and
// README.md in the test's folder has the current table of settings. Each secret field must be set in
// at least one of the maps. UPDATE_GOLDEN=1 in the environment updates the table.
func Kind(t *testing.T, kind sinks.Kind, valid ...map[string]any) {
	t.Helper()
	registry, err := sinks.NewRegistry(kind)
	if err != nil {
		t.Fatalf("the registry refuses the kind: %v", err)
	}
	t.Run("Makes", func(t *testing.T) { makes(t, registry, kind, valid) })
	t.Run("HidesSecrets", func(t *testing.T) { hidesSecrets(t, registry, kind, valid) })
	t.Run("README", func(t *testing.T) { documented(t, kind, "README.md") })
}

func makes(t testing.TB, registry *sinks.Registry, kind sinks.Kind, valid []map[string]any) {
	t.Helper()
	for _, settings := range valid {
		sink, err := registry.Make(kind.Name, settings)
		if err != nil {
			t.Fatalf("no sink can be made from valid settings: %v", err)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Errorf("Close of the new sink: %v", err)
		}
	}
}

// hidesSecrets replaces the settings one by one with wrong values, and checks that the errors show no
// secret.
func hidesSecrets(t testing.TB, registry *sinks.Registry, kind sinks.Kind, valid []map[string]any) {
	t.Helper()
	secrets := secretTexts(t, kind, valid)
	for _, settings := range valid {
		destinationHides(t, registry, kind, settings, secrets)
		for _, field := range kind.Fields {
			for _, wrong := range wrongValues(field, secrets) {
				changed := maps.Clone(settings)
				changed[field.Name] = wrong
				errorHides(t, registry, kind, changed, secrets)
				changed["no_such_setting"] = wrong
				errorHides(t, registry, kind, changed, secrets)
			}
		}
	}
}

// destinationHides checks a sink that has the method Destination: the text that the method returns
// must not be empty and must show no secret.
func destinationHides(t testing.TB, registry *sinks.Registry, kind sinks.Kind, settings map[string]any, secrets []string) {
	t.Helper()
	sink, err := registry.Make(kind.Name, settings)
	if err != nil {
		t.Fatalf("no sink can be made from valid settings: %v", err)
	}
	defer func() { _ = sink.Close(t.Context()) }()
	destined, ok := sink.(sinks.Destined)
	if !ok {
		return
	}
	where := destined.Destination()
	if where == "" || slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(where, secret) }) {
		t.Errorf("the sink's destination is %q: it must not be empty or show a secret", where)
	}
}

func errorHides(t testing.TB, registry *sinks.Registry, kind sinks.Kind, settings map[string]any, secrets []string) {
	t.Helper()
	sink, err := registry.Make(kind.Name, settings)
	if err == nil {
		_ = sink.Close(t.Context())
		return
	}
	for _, secret := range secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("an error shows a secret: %v", err)
		}
	}
}

// wrongValues returns values of many types. For a secret field, some of them contain a secret in a
// list or a map, or with a newline, which are common mistakes in a configuration.
func wrongValues(field settings.Field, secrets []string) []any {
	values := []any{12345, true, []any{}, nil, "", map[string]any{}, "nonsense\n"}
	if !field.Type.Secret() {
		return values
	}
	for _, secret := range secrets {
		values = append(values, secret, secret+"\n", []any{secret},
			map[string]any{"X-Name": []any{secret}}, map[string]any{"a name": secret}, map[string]any{"X-Name": secret + "\n"})
	}
	return values
}

// secretTexts returns the texts of all secret settings.
func secretTexts(t testing.TB, kind sinks.Kind, valid []map[string]any) []string {
	t.Helper()
	var texts []string
	for _, field := range kind.Fields {
		if !field.Type.Secret() {
			continue
		}
		before := len(texts)
		for _, raw := range valid {
			settings, err := kind.Parse(raw)
			if err != nil {
				t.Fatalf("valid settings are refused: %v", err)
			}
			texts = append(texts, secretsIn(settings, field)...)
		}
		if len(texts) == before {
			t.Errorf("the secret field %s is set in none of the valid settings", field.Name)
		}
	}
	return texts
}

func secretsIn(values settings.Values, field settings.Field) []string {
	var texts []string
	if field.Type == settings.TypeSecret {
		texts = append(texts, values.Secret(field.Name).Reveal())
	} else {
		for _, secret := range values.SecretMap(field.Name) {
			texts = append(texts, secret.Reveal())
		}
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

const (
	tableStart = "<!-- settings: generated from the kind's fields; UPDATE_GOLDEN=1 go test updates them -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

// documented checks that the table of settings in a file describes the kind's fields.
func documented(t testing.TB, kind sinks.Kind, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableStart)
	table, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatalf("%s has no table between these lines:\n%s%s", path, tableStart, tableEnd)
	}
	want := "\n" + kind.Markdown() + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" && table != want {
		if err := os.WriteFile(path, []byte(before+tableStart+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("the settings in %s are stale; UPDATE_GOLDEN=1 updates them. They should be:\n%s", path, want)
	}
}
