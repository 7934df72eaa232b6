package sinks

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Settings are the checked settings of one sink, with a value for each of its
// fields: the one that was given, or the default. A getter panics where the
// sink's [Kind] has no such field of that type: a mistake in the sink's code,
// which the first test of its constructor finds.
type Settings struct {
	kind   string
	values map[string]any
}

// Text returns a setting of [TypeString].
func (s Settings) Text(name string) string { return setting[string](s, name) }

// Int returns a setting of [TypeInt].
func (s Settings) Int(name string) int { return setting[int](s, name) }

// Bool returns a setting of [TypeBool].
func (s Settings) Bool(name string) bool { return setting[bool](s, name) }

// Duration returns a setting of [TypeDuration].
func (s Settings) Duration(name string) time.Duration { return setting[time.Duration](s, name) }

// Size returns a setting of [TypeSize], in bytes.
func (s Settings) Size(name string) int64 { return setting[int64](s, name) }

// List returns a setting of [TypeList].
func (s Settings) List(name string) []string { return setting[[]string](s, name) }

// Map returns a setting of [TypeMap].
func (s Settings) Map(name string) map[string]string { return setting[map[string]string](s, name) }

// Secret returns a setting of [TypeSecret].
func (s Settings) Secret(name string) Secret { return setting[Secret](s, name) }

// SecretMap returns a setting of [TypeSecretMap].
func (s Settings) SecretMap(name string) map[string]Secret {
	return setting[map[string]Secret](s, name)
}

func setting[T any](s Settings, name string) T {
	value, ok := s.values[name].(T)
	if !ok {
		panic(fmt.Sprintf("sinks: kind %s has no field %s of type %T", s.kind, name, value))
	}
	return value
}

// FieldError is one thing that is wrong with one setting.
type FieldError struct {
	Kind  string // the sink's kind
	Field string // the setting's name, as it was written
	Err   error  // completes the sentence "the setting …"
}

// Error names the kind and the field, and says what is wrong.
func (e *FieldError) Error() string {
	return fmt.Sprintf("sink kind %s, setting %s: %v", e.Kind, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// SettingsError is everything that is wrong with the settings of one sink, in
// the order of the kind's fields, unknown settings last.
type SettingsError []*FieldError

// Error has one line a problem.
func (e SettingsError) Error() string {
	lines := make([]string, len(e))
	for i, problem := range e {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems.
func (e SettingsError) Unwrap() []error {
	problems := make([]error, len(e))
	for i, problem := range e {
		problems[i] = problem
	}
	return problems
}

// Parse checks settings as a configuration holds them and returns them typed.
// The error is a [SettingsError] with all that is wrong.
func (k Kind) Parse(raw map[string]any) (Settings, error) {
	values, problems := map[string]any{}, SettingsError(nil)
	for _, field := range k.Fields {
		value, err := k.value(field, raw)
		if err != nil {
			problems = append(problems, &FieldError{Kind: k.Name, Field: field.Name, Err: err})
		}
		values[field.Name] = value
	}
	problems = append(problems, k.unknown(raw)...)
	if len(problems) > 0 {
		return Settings{}, problems
	}
	return Settings{kind: k.Name, values: values}, nil
}

func (k Kind) value(field Field, raw map[string]any) (any, error) {
	given, ok := raw[field.Name]
	switch {
	case ok:
		return field.parse(given)
	case field.Required:
		return nil, fmt.Errorf("is required: %s", field.Help)
	}
	return field.fallback(), nil
}

func (k Kind) unknown(raw map[string]any) SettingsError {
	var problems SettingsError
	for name := range raw {
		if _, ok := k.Field(name); !ok {
			problems = append(problems, &FieldError{Kind: k.Name, Field: name, Err: k.unknownField()})
		}
	}
	slices.SortFunc(problems, func(a, b *FieldError) int { return strings.Compare(a.Field, b.Field) })
	return problems
}

func (k Kind) unknownField() error {
	if len(k.Fields) == 0 {
		return fmt.Errorf("is not known; this kind has no settings")
	}
	names := make([]string, len(k.Fields))
	for i, field := range k.Fields {
		names[i] = field.Name
	}
	slices.Sort(names)
	return fmt.Errorf("is not known; this kind has %s", strings.Join(names, ", "))
}
