package sinks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// FieldType is the type of a setting.
type FieldType string

// The types of settings, and how a value of each is written.
const (
	TypeString    FieldType = "string"      // text
	TypeInt       FieldType = "int"         // a whole number
	TypeBool      FieldType = "bool"        // true or false
	TypeDuration  FieldType = "duration"    // a number and its unit: 250ms, 10s, 1h30m
	TypeSize      FieldType = "size"        // bytes: 4096, 64KiB, 1MiB, 10MB
	TypeList      FieldType = "string list" // a list of texts
	TypeMap       FieldType = "string map"  // texts by name
	TypeSecret    FieldType = "secret"      // text that is never shown
	TypeSecretMap FieldType = "secret map"  // texts by name, the texts never shown
)

// Secret says whether values of this type must never be shown.
func (t FieldType) Secret() bool { return t == TypeSecret || t == TypeSecretMap }

// Field describes one setting of a sink. It is data: settings are checked by
// it, and the documentation is made from it.
type Field struct {
	Name string // lower_snake_case
	Type FieldType

	// Default is the value without the setting, written as a user would write
	// it. Empty means the type's zero value.
	Default string

	// Required settings must be given, and texts among them must not be empty.
	Required bool

	// Help says in a sentence what the setting does.
	Help string

	// Min and Max are the limits of an int, duration or size, themselves
	// allowed, written as a user would write them. Empty means no limit.
	Min, Max string

	// Choices are the only values that a string may have. Empty means any.
	Choices []string

	// Check finds what the rest of the Field can't say, and returns an error
	// that completes the sentence "the setting …". It is given the value as the
	// getter of [Settings] returns it. The error must not hold a secret. Nil
	// means no such check.
	Check func(value any) error
}

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// parse reads a value as it comes from a configuration and checks it.
func (f Field) parse(raw any) (any, error) {
	if raw == nil {
		return nil, errors.New("has no value; leave it out for the default")
	}
	value, err := parsers[f.Type](raw)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.checkLimits(value), f.checkText(value)); err != nil {
		return nil, err
	}
	if f.Check == nil {
		return value, nil
	}
	return value, f.Check(value)
}

func (f Field) checkLimits(value any) error {
	n, counts := magnitude(value)
	if low, ok := f.limit(f.Min); counts && ok && n < low {
		return fmt.Errorf("must be at least %s, not %v", f.Min, value)
	}
	if high, ok := f.limit(f.Max); counts && ok && n > high {
		return fmt.Errorf("must be at most %s, not %v", f.Max, value)
	}
	return nil
}

func (f Field) limit(written string) (int64, bool) {
	if written == "" {
		return 0, false
	}
	value, err := parsers[f.Type](written)
	if err != nil {
		return 0, false
	}
	return magnitude(value)
}

func (f Field) checkText(value any) error {
	text, ok := value.(string)
	switch {
	case !ok:
		return nil
	case f.Required && text == "":
		return errors.New("must not be empty")
	case len(f.Choices) > 0 && !slices.Contains(f.Choices, text):
		return fmt.Errorf("must be one of %s, not %q", strings.Join(f.Choices, ", "), text)
	}
	return nil
}

// fallback is the value of a setting that was not given.
func (f Field) fallback() any {
	if f.Default == "" {
		return zeroes[f.Type]
	}
	value, err := f.parse(f.Default)
	if err != nil {
		return zeroes[f.Type] // NewRegistry refuses such a default
	}
	return value
}

// valid finds mistakes in the Field itself.
func (f Field) valid() error {
	if !fieldName.MatchString(f.Name) {
		return fmt.Errorf("the name %q is not in lower_snake_case", f.Name)
	}
	if _, ok := parsers[f.Type]; !ok {
		return fmt.Errorf("field %s: the type %q is not known", f.Name, f.Type)
	}
	for _, written := range []string{f.Min, f.Max} {
		if _, ok := f.limit(written); !ok && written != "" {
			return fmt.Errorf("field %s: the limit %q is not a number of type %s", f.Name, written, f.Type)
		}
	}
	if f.Default == "" {
		return nil
	}
	if _, err := f.parse(f.Default); err != nil {
		return fmt.Errorf("field %s: the default %w", f.Name, err)
	}
	return nil
}
