package sinks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Kind describes one kind of sink: its name, its settings, and its constructor.
type Kind struct {
	Name    string           // the name in configuration files
	Summary string           // one sentence for the documentation
	Fields  []settings.Field // the settings, in the order of the documentation

	// Schemes lists the URL schemes of this kind. If it is empty, FromURL is nil.
	Schemes []string

	// FromURL returns the settings that a sink's URL contains, without checking them.
	// Its error must not contain the URL, which may hold a secret.
	FromURL func(*url.URL) (map[string]any, error)

	// New makes a sink from settings that [Kind.Parse] has checked. It opens no
	// connection.
	New func(settings.Values) (Sink, error)
}

// Field returns the field with this name, and whether it exists.
func (k Kind) Field(name string) (settings.Field, bool) {
	i := slices.IndexFunc(k.Fields, func(f settings.Field) bool { return f.Name == name })
	if i < 0 {
		return settings.Field{}, false
	}
	return k.Fields[i], true
}

// Parse checks the settings of a configuration and returns their typed values.
// The error is a [settings.Errors] that lists every problem.
func (k Kind) Parse(raw map[string]any) (settings.Values, error) {
	return settings.Parse(k.Name, k.Fields, raw)
}

// Registry is an immutable set of kinds. It may be used concurrently.
type Registry struct {
	byName   map[string]Kind
	byScheme map[string]Kind
}

// NewRegistry returns a Registry of the given kinds. The error lists every kind whose
// name or scheme is already taken, or whose definition is not valid.
func NewRegistry(kinds ...Kind) (*Registry, error) {
	r := &Registry{byName: map[string]Kind{}, byScheme: map[string]Kind{}}
	var problems []error
	for _, kind := range kinds {
		problems = append(problems, kind.valid(), r.add(kind))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) add(kind Kind) error {
	if _, ok := r.byName[kind.Name]; ok {
		return fmt.Errorf("sink kind %s: two kinds have this name", kind.Name)
	}
	r.byName[kind.Name] = kind
	for _, scheme := range kind.Schemes {
		if other, ok := r.byScheme[scheme]; ok {
			return fmt.Errorf("sink kind %s: the URL scheme %s already belongs to kind %s", kind.Name, scheme, other.Name)
		}
		r.byScheme[scheme] = kind
	}
	return nil
}

// Kinds returns the kinds, sorted by name.
func (r *Registry) Kinds() []Kind {
	return slices.SortedFunc(maps.Values(r.byName), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

// Kind returns the kind with this name, and whether it exists.
func (r *Registry) Kind(name string) (Kind, bool) {
	kind, ok := r.byName[name]
	return kind, ok
}

// Make makes a sink of the given kind. The settings are values from a configuration
// file: strings, numbers, booleans, lists and maps. Make opens no connection. If settings
// are invalid, the error is a [settings.Errors] that lists every problem.
func (r *Registry) Make(kind string, settings map[string]any) (Sink, error) {
	known, ok := r.byName[kind]
	if !ok {
		return nil, fmt.Errorf("sink kind %q is not known: it must be one of %s", kind, names(r.byName))
	}
	parsed, err := known.Parse(settings)
	if err != nil {
		return nil, err
	}
	sink, err := known.New(parsed)
	if err != nil {
		return nil, fmt.Errorf("sink kind %s: %w", kind, err)
	}
	return sink, nil
}

// FromURL makes a sink from a URL, for example one from the command line. The URL's
// scheme selects the kind. Errors don't contain the URL, which may hold a secret.
func (r *Registry) FromURL(rawURL string) (Sink, error) {
	parsed, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the sink's URL is malformed; special characters in a user name or password must be percent-encoded")
	}
	kind, ok := r.byScheme[parsed.Scheme]
	if !ok {
		return nil, r.unknownScheme(cmp.Or(parsed.Scheme, rawURL), parsed.Scheme)
	}
	settings, err := kind.FromURL(parsed)
	if err != nil {
		return nil, fmt.Errorf("read the %s sink's URL: %w", kind.Name, err)
	}
	return r.Make(kind.Name, settings)
}

// unknownScheme returns the error for a URL whose scheme is unknown. If the scheme, without a suffix such as +ssl, is the name or a
// scheme of a kind, the error suggests the schemes of this kind. A URL that is only a name, such as kafka, is treated as a scheme.
func (r *Registry) unknownScheme(given, scheme string) error {
	hint := ""
	name, _, _ := strings.Cut(given, "+")
	kind, known := r.byName[name]
	if !known {
		kind, known = r.byScheme[name]
	}
	if known && len(kind.Schemes) > 0 {
		hint = fmt.Sprintf("; the URL of a %s sink begins with %s:", kind.Name, strings.Join(kind.Schemes, ": or "))
	} else if _, has := r.byScheme["plugin"]; has && scheme != "" {
		hint = "; other destinations need a plug-in, such as plugin:rowrelay-plugin-nats (see rowrelay plugin list)"
	}
	return fmt.Errorf("the sink's URL has the scheme %q: it must be one of %s%s", scheme, names(r.byScheme), hint)
}

func names(kinds map[string]Kind) string {
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}

var kindName = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`) // for the names of kinds and for URL schemes

// valid returns an error that lists all mistakes in the definition of the kind.
func (k Kind) valid() error {
	var problems []error
	for _, name := range append([]string{k.Name}, k.Schemes...) {
		if !kindName.MatchString(name) {
			problems = append(problems, fmt.Errorf("%q must begin with a-z, and have only a-z, 0-9, +, . and -", name))
		}
	}
	if k.New == nil || (k.FromURL == nil) != (len(k.Schemes) == 0) {
		problems = append(problems, errors.New("the function New is missing, or only one of Schemes and FromURL is set"))
	}
	seen := map[string]bool{}
	for _, field := range k.Fields {
		problems = append(problems, field.Valid())
		if seen[field.Name] {
			problems = append(problems, fmt.Errorf("field %s: two fields have this name", field.Name))
		}
		seen[field.Name] = true
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("sink kind %s: %w", k.Name, err)
	}
	return nil
}

// Describe returns the kind's documentation as plain text, for a terminal.
func (k Kind) Describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n", k.Name, k.Summary)
	if len(k.Schemes) > 0 {
		fmt.Fprintf(&text, "URL schemes: %s\n", strings.Join(k.Schemes, ", "))
	}
	if len(k.Fields) == 0 {
		return text.String()
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, f := range k.Fields {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", f.Name, f.Type, f.Bounds(), f.Help)
	}
	_ = table.Flush() // writing to a strings.Builder never fails
	return text.String()
}

// Markdown returns a table of the kind's settings for its README.
func (k Kind) Markdown() string {
	if len(k.Fields) == 0 {
		return "This sink has no settings.\n"
	}
	var text strings.Builder
	text.WriteString("| Setting | Type | Default and limits | What it does |\n| --- | --- | --- | --- |\n")
	for _, f := range k.Fields {
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, f.Bounds(), strings.ReplaceAll(f.Help, "|", `\|`))
	}
	return text.String()
}
