package sinks_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// testKind returns a kind with a field of each type.
func testKind() sinks.Kind {
	return sinks.Kind{
		Name:    "test",
		Summary: "A sink for tests.",
		Fields: []settings.Field{
			{Name: "path", Type: settings.TypeString, Required: true, Help: "where to write"},
			{Name: "method", Type: settings.TypeString, Default: "POST", Choices: []string{"POST", "PUT"}, Help: "how | to write"},
			{Name: "even", Type: settings.TypeInt, Help: "an even number", Check: checkEven},
			{Name: "workers", Type: settings.TypeInt, Default: "8", Min: "1", Max: "100", Help: "how many"},
			{Name: "sync", Type: settings.TypeBool, Default: "true", Help: "whether to sync"},
			{Name: "timeout", Type: settings.TypeDuration, Default: "10s", Min: "1ms", Max: "1h", Help: "how long"},
			{Name: "age", Type: settings.TypeDuration, Help: "how old"},
			{Name: "limit", Type: settings.TypeSize, Default: "1MiB", Max: "1GiB", Help: "how large"},
			{Name: "topics", Type: settings.TypeList, Help: "which"},
			{Name: "labels", Type: settings.TypeMap, Help: "more"},
			{Name: "token", Type: settings.TypeSecret, Help: "the password"},
			{Name: "headers", Type: settings.TypeSecretMap, Help: "more passwords"},
		},
		New: func(settings.Values) (sinks.Sink, error) { return nil, nil },
	}
}

func checkEven(value any) error {
	if value.(int)%2 != 0 {
		return errors.New("must be even")
	}
	return nil
}

func TestParseDefaults(t *testing.T) {
	t.Parallel()
	s, err := testKind().Parse(map[string]any{"path": "p"})
	if err != nil {
		t.Fatal(err)
	}
	got := []any{
		s.Text("path"), s.Text("method"), s.Int("even"), s.Int("workers"), s.Bool("sync"), s.Duration("timeout"),
		s.Size("limit"), len(s.List("topics")), len(s.Map("labels")), s.Secret("token").Reveal(), len(s.SecretMap("headers")),
	}
	want := []any{"p", "POST", 0, 8, true, 10 * time.Second, int64(1 << 20), 0, 0, "", 0}
	if !slices.Equal(got, want) {
		t.Errorf("the defaults are %v, want %v", got, want)
	}
}

func TestParseValues(t *testing.T) {
	t.Parallel()
	secrets := map[string]settings.Secret{"X-A": "b"}
	texts := map[string]string{"a": "b"}
	tests := []struct {
		field string
		raw   any
		want  any
	}{
		{"method", "PUT", "PUT"},
		{"even", uint64(4), 4}, {"even", -2, -2}, {"even", 4.0, 4}, {"even", "6", 6},
		{"workers", 1, 1}, {"workers", 100, 100},
		{"sync", false, false}, {"sync", "false", false},
		{"timeout", "1ms", time.Millisecond}, {"timeout", "1h", time.Hour}, {"timeout", time.Second, time.Second}, {"age", "7d", 7 * 24 * time.Hour},
		{"limit", 4096, int64(4096)}, {"limit", "64KiB", int64(64 << 10)}, {"limit", "10 MB", int64(10e6)}, {"limit", "1GiB", int64(1 << 30)},
		{"topics", []any{"a", "b"}, []string{"a", "b"}}, {"topics", []string{"a"}, []string{"a"}},
		{"labels", map[string]any{"a": "b"}, texts}, {"labels", texts, texts},
		{"token", "t", settings.Secret("t")}, {"token", settings.Secret("t"), settings.Secret("t")},
		{"headers", map[string]any{"X-A": "b"}, secrets}, {"headers", secrets, secrets},
		{"headers", map[string]string{"X-A": "b"}, secrets},
	}
	for _, test := range tests {
		s, err := testKind().Parse(map[string]any{"path": "p", test.field: test.raw})
		if err != nil {
			t.Errorf("%s: %v", test.field, err)
			continue
		}
		if got := getters[test.field](s); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s = %#v, want %#v", test.field, got, test.want)
		}
	}
}

var getters = map[string]func(settings.Values) any{
	"method":  func(s settings.Values) any { return s.Text("method") },
	"even":    func(s settings.Values) any { return s.Int("even") },
	"workers": func(s settings.Values) any { return s.Int("workers") },
	"sync":    func(s settings.Values) any { return s.Bool("sync") },
	"timeout": func(s settings.Values) any { return s.Duration("timeout") },
	"age":     func(s settings.Values) any { return s.Duration("age") },
	"limit":   func(s settings.Values) any { return s.Size("limit") },
	"topics":  func(s settings.Values) any { return s.List("topics") },
	"labels":  func(s settings.Values) any { return s.Map("labels") },
	"token":   func(s settings.Values) any { return s.Secret("token") },
	"headers": func(s settings.Values) any { return s.SecretMap("headers") },
}

func TestParseRefusesInvalidValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		field string
		raw   any
		want  string
	}{
		{"path", "", "must not be empty"},
		{"path", 7, "must be text, not a number: write the value in quotes"},
		{"path", nil, "has no value; leave it out for the default"},
		{"method", "GET", "must be one of POST, PUT"},
		{"even", 3, "must be even"},
		{"even", 4.5, "must be a whole number"},
		{"even", uint64(1 << 63), "must be a whole number"},
		{"workers", 0, "must be at least 1"},
		{"workers", 101, "must be at most 100"},
		{"workers", "many", "must be a whole number"},
		{"workers", []any{1}, "must be a whole number"},
		{"sync", "yes", "must be true or false"},
		{"sync", map[string]any{}, "must be true or false"},
		{"timeout", 10, "must be a number with a unit, such as 250ms, 10s, 24h or 7d"},
		{"timeout", "999µs", "must be at least 1ms"},
		{"timeout", "1h1ns", "must be at most 1h"},
		{"limit", "1 TB", "must be a number of bytes, such as 4096, 64KiB or 1MiB"},
		{"limit", -1, "must be a number of bytes, such as 4096, 64KiB or 1MiB"},
		{"limit", "1073741825", "must be at most 1GiB"},
		{"limit", "9999999999999GiB", "is too large a number"},
		{"topics", "a", "must be a list of strings, not text"},
		{"topics", []any{"a", 1}, "must be a list of strings: element 2 is a number; write it in quotes"},
		{"labels", []any{}, "must be a map from names to strings, not a list"},
		{"labels", map[string]any{"a": true}, `must have strings as values: the value of "a" is a boolean; write it in quotes`},
		{"token", "", "is empty; remove the setting if there is no value"},
		{"token", 12345, "must be text, not a number: write the value in quotes"},
		{"headers", map[string]any{"a": 12345}, `must have strings as values: the value of "a" is a number; write it in quotes`},
		{"tpyo", 1, "is not known; this kind has age, even, headers, labels, limit, method, path, sync, timeout, token, topics, workers"},
	}
	for _, test := range tests {
		raw := map[string]any{"path": "p"}
		raw[test.field] = test.raw
		_, err := testKind().Parse(raw)
		want := "sink kind test, setting " + test.field + ": " + test.want
		if err == nil || err.Error() != want {
			t.Errorf("%s = %v:\n got %v\nwant %s", test.field, test.raw, err, want)
		}
	}
}

func TestParseReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := testKind().Parse(map[string]any{"workers": 0, "even": 1, "zebra": 1, "apple": 2})
	var problems settings.Errors
	if !errors.As(err, &problems) {
		t.Fatalf("the error is a %T", err)
	}
	var fields []string
	for _, problem := range problems {
		fields = append(fields, problem.Field)
	}
	if want := []string{"path", "even", "workers", "apple", "zebra"}; !slices.Equal(fields, want) {
		t.Errorf("problems with %v, want %v", fields, want)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 5 {
		t.Errorf("the error has %d lines:\n%v", lines, err)
	}
	var one *settings.FieldError
	if !errors.As(err, &one) || one.Field != "path" || one.Kind != "test" {
		t.Errorf("the first problem is %+v", one)
	}
}

func TestParseErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	values := []any{secret, []any{secret}, map[string]any{"a": secret, "b": 1}, map[string]string{"a": secret}}
	for _, field := range testKind().Fields {
		if !field.Type.Secret() {
			continue
		}
		for _, value := range values {
			_, err := testKind().Parse(map[string]any{field.Name: value}) // path is missing, so there is an error
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s = %v: %v", field.Name, value, err)
			}
		}
	}
}

func TestGettersPanicOnUnknownFields(t *testing.T) {
	t.Parallel()
	s, err := testKind().Parse(map[string]any{"path": "p"})
	if err != nil {
		t.Fatal(err)
	}
	for _, get := range []func(){func() { s.Text("nowhere") }, func() { s.Text("workers") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the getter returned")
				}
			}()
			get()
		}()
	}
}

func TestEveryTypeIsTested(t *testing.T) {
	t.Parallel()
	types := map[settings.FieldType]bool{}
	for _, field := range testKind().Fields {
		types[field.Type] = true
	}
	if got := len(slices.Collect(maps.Keys(types))); got != 9 {
		t.Errorf("testKind has fields of %d types", got)
	}
}
