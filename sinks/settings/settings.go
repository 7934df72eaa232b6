// Package settings describes and checks the settings of sinks. A [Field] describes
// one setting, and [Values] has the checked values of all settings. The package also
// has the parts that several sinks share: secrets, templates, TLS files and URLs.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings come from a configuration file, a URL or Go code, as strings, numbers,
// booleans, lists and maps. Parse converts them to typed Values as their Fields
// specify, or returns all problems. No error in this package contains a value,
// because a user may have put a secret into the wrong setting.

// FieldType is the type of a setting.
type FieldType string

// The types of settings. The comments show how a value is written.
const (
	TypeString    FieldType = "string"      // text
	TypeInt       FieldType = "int"         // a whole number
	TypeBool      FieldType = "bool"        // true or false
	TypeDuration  FieldType = "duration"    // a number and its unit: 250ms, 10s, 1h30m, 7d
	TypeSize      FieldType = "size"        // bytes: 4096, 64KiB, 1MiB, 10MB
	TypeList      FieldType = "string list" // a list of strings
	TypeMap       FieldType = "string map"  // a map from names to strings
	TypeSecret    FieldType = "secret"      // text that is never shown
	TypeSecretMap FieldType = "secret map"  // a map from names to strings that are never shown
)

// Secret reports whether values of this type must never be shown.
func (t FieldType) Secret() bool { return t == TypeSecret || t == TypeSecretMap }

// Field describes one setting of a sink. It is used to check the setting and to
// generate its documentation.
type Field struct {
	Name string // lower_snake_case
	Type FieldType

	// Default is the default value, as a user would write it. Empty means the
	// type's zero value.
	Default string

	// Required means that the setting must be given. A required string must not be
	// empty.
	Required bool

	// Help describes the setting in one or more sentences.
	Help string

	// Min and Max are the inclusive limits of an int, duration or size, as a user
	// would write them. Empty means no limit.
	Min, Max string

	// Choices are the allowed values of a string. Empty allows all values.
	Choices []string

	// Check performs further checks on the value. Its argument has the type that the
	// setting's getter returns, such as time.Duration. Its error completes the sentence "the
	// setting …" and must not contain a secret. Check may be nil.
	Check func(value any) error
}

// Check returns a [Field.Check] that calls a function with a typed argument.
func Check[T any](check func(T) error) func(any) error {
	return func(value any) error { return check(value.(T)) }
}

// Parses returns a [Field.Check] that reports the errors of a parser.
func Parses[T, P any](parse func(T) (P, error)) func(any) error {
	return func(value any) error {
		_, err := parse(value.(T))
		return err
	}
}

// Parse checks a value of a configuration. The result has the type that the setting's
// getter returns, such as time.Duration. The error completes the sentence "the setting …".
func (f Field) Parse(raw any) (any, error) {
	if raw == nil {
		return nil, errors.New("has no value; leave it out for the default")
	}
	value, err := types[f.Type].parse(raw)
	if err != nil {
		return nil, err
	}
	n, counts := magnitude(value)
	text, isText := value.(string)
	switch {
	case counts && f.Min != "" && n < f.limit(f.Min):
		return nil, fmt.Errorf("must be at least %s", f.Min)
	case counts && f.Max != "" && n > f.limit(f.Max):
		return nil, fmt.Errorf("must be at most %s", f.Max)
	case isText && f.Required && text == "":
		return nil, errors.New("must not be empty")
	case isText && len(f.Choices) > 0 && !slices.Contains(f.Choices, text):
		return nil, fmt.Errorf("must be one of %s", strings.Join(f.Choices, ", "))
	case f.Check != nil:
		return value, f.Check(value)
	}
	return value, nil
}

// limit converts Min or Max to a number. Field.Valid has checked that this is possible.
func (f Field) limit(written string) int64 {
	value, _ := types[f.Type].parse(written)
	n, _ := magnitude(value)
	return n
}

// magnitude returns the number to compare with limits, and false if the value is
// not a number.
func magnitude(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case time.Duration:
		return int64(v), true
	}
	return 0, false
}

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Valid returns an error if the Field itself has a mistake.
func (f Field) Valid() error {
	if !fieldName.MatchString(f.Name) {
		return fmt.Errorf("the name %q is not in lower_snake_case", f.Name)
	}
	if _, known := types[f.Type]; !known {
		return fmt.Errorf("field %s: the type %q is not known", f.Name, f.Type)
	}
	for _, written := range []string{f.Min, f.Max} {
		value, err := types[f.Type].parse(written)
		if _, counts := magnitude(value); written != "" && (err != nil || !counts) {
			return fmt.Errorf("field %s: the limit %q is not a number of type %s", f.Name, written, f.Type)
		}
	}
	if f.Default != "" {
		if _, err := f.Parse(f.Default); err != nil {
			return fmt.Errorf("field %s: the default %w", f.Name, err)
		}
	}
	return nil
}

// Bounds describes the allowed values and the default in a few words.
func (f Field) Bounds() string {
	var parts []string
	switch {
	case f.Required:
		parts = append(parts, "required")
	case f.Default != "":
		parts = append(parts, f.Default)
	case f.Type == TypeBool:
		parts = append(parts, "false")
	default:
		parts = append(parts, "none")
	}
	switch {
	case f.Min != "" && f.Max != "":
		parts = append(parts, f.Min+" to "+f.Max)
	case f.Min != "":
		parts = append(parts, "at least "+f.Min)
	case f.Max != "":
		parts = append(parts, "at most "+f.Max)
	}
	if len(f.Choices) > 0 {
		parts = append(parts, "one of "+strings.Join(f.Choices, ", "))
	}
	return strings.Join(parts, "; ")
}

// types has the zero value and the parser of each type.
var types = map[FieldType]struct {
	zero  any
	parse func(raw any) (any, error)
}{
	TypeString:    {"", parseString},
	TypeInt:       {0, parseInt},
	TypeBool:      {false, parseBool},
	TypeDuration:  {time.Duration(0), parseDuration},
	TypeSize:      {int64(0), parseSize},
	TypeList:      {[]string(nil), parseList},
	TypeMap:       {map[string]string(nil), parseMap[string]},
	TypeSecret:    {Secret(""), parseSecret},
	TypeSecretMap: {map[string]Secret(nil), parseMap[Secret]},
}

func parseString(raw any) (any, error) {
	if text, ok := raw.(string); ok {
		return text, nil
	}
	return nil, fmt.Errorf("must be text, not %s: write the value in quotes", typeOf(raw))
}

func parseSecret(raw any) (any, error) {
	if secret, ok := raw.(Secret); ok {
		return secret, nil
	}
	text, err := parseString(raw)
	switch {
	case err != nil:
		return nil, err
	case text == "":
		return nil, errors.New("is empty; remove the setting if there is no value")
	}
	return Secret(text.(string)), nil
}

func parseInt(raw any) (any, error) {
	n, err := strconv.ParseInt(wholeNumber(raw), 10, strconv.IntSize)
	if err != nil {
		return nil, errors.New("must be a whole number")
	}
	return int(n), nil
}

// wholeNumber returns a whole number of any Go type as decimal digits. A string is
// returned unchanged. For other values the result is "".
func wholeNumber(raw any) string {
	switch v := raw.(type) {
	case string:
		return v
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v)
	case float64: // the type of all numbers from a JSON decoder
		if v == math.Trunc(v) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	return ""
}

func parseBool(raw any) (any, error) {
	switch raw {
	case true, "true":
		return true, nil
	case false, "false":
		return false, nil
	}
	return nil, errors.New("must be true or false")
}

var days = regexp.MustCompile(`^([0-9]{1,5})d$`)

func parseDuration(raw any) (any, error) {
	if d, ok := raw.(time.Duration); ok {
		return d, nil
	}
	text, _ := raw.(string)
	if whole := days.FindStringSubmatch(text); whole != nil {
		n, _ := strconv.Atoi(whole[1]) // five digits always fit
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New("must be a number with a unit, such as 250ms, 10s, 24h or 7d")
	}
	return d, nil
}

var sizeText = regexp.MustCompile(`^([0-9]+) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)?$`)

var sizeUnits = map[string]int64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

func parseSize(raw any) (any, error) {
	parts := sizeText.FindStringSubmatch(wholeNumber(raw))
	if parts == nil {
		return nil, errors.New("must be a number of bytes, such as 4096, 64KiB or 1MiB")
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if unit := sizeUnits[parts[2]]; err == nil && n <= math.MaxInt64/unit {
		return n * unit, nil
	}
	return nil, errors.New("is too large a number")
}

func parseList(raw any) (any, error) {
	if texts, ok := raw.([]string); ok {
		return texts, nil
	}
	elements, ok := raw.([]any)
	if !ok {
		return nil, fmt.Errorf("must be a list of strings, not %s", typeOf(raw))
	}
	list := make([]string, len(elements))
	for i, element := range elements {
		if list[i], ok = element.(string); !ok {
			return nil, fmt.Errorf("must be a list of strings: element %d is %s; write it in quotes", i+1, typeOf(element))
		}
	}
	return list, nil
}

func parseMap[T ~string](raw any) (any, error) {
	texts := map[string]T{}
	switch v := raw.(type) {
	case map[string]T:
		return v, nil
	case map[string]string:
		for name, text := range v {
			texts[name] = T(text)
		}
	case map[string]any:
		for name, value := range v {
			text, ok := value.(string)
			if !ok {
				return nil, fmt.Errorf("must have strings as values: the value of %q is %s; write it in quotes", name, typeOf(value))
			}
			texts[name] = T(text)
		}
	default:
		return nil, fmt.Errorf("must be a map from names to strings, not %s", typeOf(raw))
	}
	return texts, nil
}

// typeOf names the type of a value without showing it.
func typeOf(raw any) string {
	switch raw.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case bool:
		return "a boolean"
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return "a number"
	case []any, []string:
		return "a list"
	case map[string]any, map[string]string:
		return "a map"
	}
	return fmt.Sprintf("a value of type %T", raw)
}

// Values are the checked settings of one sink. Each setting has the given value or
// the default. A getter panics if the sink's kind has no field with this name and
// type, so the first test of the sink's constructor finds such a mistake.
type Values struct {
	kind   string
	values map[string]any
}

// Text returns a setting of [TypeString].
func (s Values) Text(name string) string { return setting[string](s, name) }

// Int returns a setting of [TypeInt].
func (s Values) Int(name string) int { return setting[int](s, name) }

// Bool returns a setting of [TypeBool].
func (s Values) Bool(name string) bool { return setting[bool](s, name) }

// Duration returns a setting of [TypeDuration].
func (s Values) Duration(name string) time.Duration { return setting[time.Duration](s, name) }

// Size returns a setting of [TypeSize], in bytes.
func (s Values) Size(name string) int64 { return setting[int64](s, name) }

// List returns a setting of [TypeList].
func (s Values) List(name string) []string { return setting[[]string](s, name) }

// Map returns a setting of [TypeMap].
func (s Values) Map(name string) map[string]string { return setting[map[string]string](s, name) }

// Secret returns a setting of [TypeSecret].
func (s Values) Secret(name string) Secret { return setting[Secret](s, name) }

// SecretMap returns a setting of [TypeSecretMap].
func (s Values) SecretMap(name string) map[string]Secret {
	return setting[map[string]Secret](s, name)
}

func setting[T any](s Values, name string) T {
	value, ok := s.values[name].(T)
	if !ok {
		panic(fmt.Sprintf("settings: kind %s has no field %s of type %T", s.kind, name, value))
	}
	return value
}

// Parse checks the settings of a sink of this kind and returns their typed values.
// The error is an [Errors] with every problem.
func Parse(kind string, fields []Field, raw map[string]any) (Values, error) {
	s, problems, names := Values{kind: kind, values: map[string]any{}}, Errors(nil), []string(nil)
	for _, field := range fields {
		names = append(names, field.Name)
		given, there := raw[field.Name]
		var err error
		switch {
		case there:
			s.values[field.Name], err = field.Parse(given)
		case field.Required:
			err = fmt.Errorf("is required: %s", field.Help)
		case field.Default != "":
			s.values[field.Name], err = field.Parse(field.Default)
		default:
			s.values[field.Name] = types[field.Type].zero
		}
		if err != nil {
			problems = append(problems, &FieldError{Kind: kind, Field: field.Name, Err: err})
		}
	}
	unknown := errors.New("is not known; this kind has no settings")
	if slices.Sort(names); len(names) > 0 {
		unknown = fmt.Errorf("is not known; this kind has %s", strings.Join(names, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !slices.Contains(names, name) {
			problems = append(problems, &FieldError{Kind: kind, Field: name, Err: unknown})
		}
	}
	if len(problems) > 0 {
		return Values{}, problems
	}
	return s, nil
}

// Errors has all problems with the settings of one sink, in the order of the kind's
// fields, with unknown settings last.
type Errors []*FieldError

// Error returns one line per problem.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, problem := range e {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems.
func (e Errors) Unwrap() []error {
	problems := make([]error, len(e))
	for i, problem := range e {
		problems[i] = problem
	}
	return problems
}

// FieldError is a problem with one setting.
type FieldError struct {
	Kind  string // the sink's kind
	Field string // the setting's name, as the user wrote it
	Err   error  // completes the sentence "the setting …"
}

// Error returns the kind, the setting and the problem.
func (e *FieldError) Error() string {
	return fmt.Sprintf("sink kind %s, setting %s: %v", e.Kind, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// PrefixError returns the sentence "the <subject> <err>" as an error that wraps err. It
// returns nil if err is nil.
func PrefixError(subject string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the %s %w", subject, err)
}
