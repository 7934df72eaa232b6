package sinks_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// named is a sink that only remembers its settings.
type named struct {
	sinks.Sink
	kind, text string
}

func namedKind(name string, schemes ...string) sinks.Kind {
	return sinks.Kind{
		Name:    name,
		Summary: "A sink that remembers its text.",
		Schemes: schemes,
		Fields:  []settings.Field{{Name: "text", Type: settings.TypeString, Help: "what to remember"}},
		FromURL: func(u *url.URL) (map[string]any, error) {
			if u.Opaque == "" {
				return nil, errors.New("there is nothing to remember")
			}
			return map[string]any{"text": u.Opaque}, nil
		},
		New: func(s settings.Values) (sinks.Sink, error) {
			if s.Text("text") == "bad" {
				return nil, errors.New("the text is bad")
			}
			return named{kind: name, text: s.Text("text")}, nil
		},
	}
}

func registry(t *testing.T) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(namedKind("zoo", "zoo", "zoos"), namedKind("ant", "ant"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRegistryMake(t *testing.T) {
	t.Parallel()
	sink, err := registry(t).Make("zoo", map[string]any{"text": "t"})
	if err != nil || sink.(named).kind != "zoo" || sink.(named).text != "t" {
		t.Errorf("made %+v, %v", sink, err)
	}
	tests := []struct{ kind, text, want string }{
		{"cat", "t", `sink kind "cat" is not known: it must be one of ant, zoo`},
		{"ant", "bad", "sink kind ant: the text is bad"},
	}
	for _, test := range tests {
		_, err := registry(t).Make(test.kind, map[string]any{"text": test.text})
		if err == nil || err.Error() != test.want {
			t.Errorf("Make(%s): %v, want %s", test.kind, err, test.want)
		}
	}
	_, err = registry(t).Make("ant", map[string]any{"text": 1})
	if problems := (settings.Errors)(nil); !errors.As(err, &problems) {
		t.Errorf("wrong settings are %T: %v", err, err)
	}
}

func TestRegistryFromURL(t *testing.T) {
	t.Parallel()
	for _, rawURL := range []string{"zoo:t", "zoos:t"} {
		sink, err := registry(t).FromURL(rawURL)
		if err != nil || sink.(named).kind != "zoo" || sink.(named).text != "t" {
			t.Errorf("%s made %+v, %v", rawURL, sink, err)
		}
	}
	tests := []struct{ rawURL, want string }{
		{"", `the sink's URL has the scheme "": it must be one of ant, zoo, zoos`},
		{"cat:t", `the sink's URL has the scheme "cat": it must be one of ant, zoo, zoos`},
		{"zoo+x:t", `the sink's URL has the scheme "zoo+x": it must be one of ant, zoo, zoos; the URL of a zoo sink begins with zoo: or zoos:`},
		{"zoos", `the sink's URL has the scheme "": it must be one of ant, zoo, zoos; the URL of a zoo sink begins with zoo: or zoos:`},
		{"zoo:", "read the zoo sink's URL: there is nothing to remember"},
		{"zoo:bad", "sink kind zoo: the text is bad"},
	}
	for _, test := range tests {
		if _, err := registry(t).FromURL(test.rawURL); err == nil || err.Error() != test.want {
			t.Errorf("FromURL(%q): %v, want %s", test.rawURL, err, test.want)
		}
	}
}

func TestRegistryFromURLErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	for _, rawURL := range []string{"zoo://u:s3cret%zz@host", "zoo://u:s3cret@host:port", "://u:s3cret@host", "zoo://u:s3 cret@host\x7f", "zoo://u:s3cret@host"} {
		_, err := registry(t).FromURL(rawURL)
		if err == nil || strings.Contains(err.Error(), "s3") {
			t.Errorf("FromURL(%q): %v", rawURL, err)
		}
	}
}

func TestRegistryKinds(t *testing.T) {
	t.Parallel()
	var got []string
	for _, kind := range registry(t).Kinds() {
		got = append(got, kind.Name)
	}
	if !slices.Equal(got, []string{"ant", "zoo"}) {
		t.Errorf("Kinds returned %v", got)
	}
	if kind, ok := registry(t).Kind("ant"); !ok || kind.Name != "ant" {
		t.Errorf("Kind returned %v, %v", kind.Name, ok)
	}
	if _, ok := registry(t).Kind("cat"); ok {
		t.Error("Kind found a kind that does not exist")
	}
}

func TestNewRegistryRefusesInvalidKinds(t *testing.T) {
	t.Parallel()
	with := func(field settings.Field) []sinks.Kind {
		kind := namedKind("zoo", "zoo")
		kind.Fields = []settings.Field{field}
		return []sinks.Kind{kind}
	}
	changed := func(change func(*sinks.Kind)) []sinks.Kind {
		kind := namedKind("zoo", "zoo")
		change(&kind)
		return []sinks.Kind{kind}
	}
	tests := map[string]struct {
		kinds []sinks.Kind
		want  string
	}{
		"two names":         {[]sinks.Kind{namedKind("zoo", "a"), namedKind("zoo", "b")}, "sink kind zoo: two kinds have this name"},
		"two schemes":       {[]sinks.Kind{namedKind("ant", "a"), namedKind("zoo", "a")}, "sink kind zoo: the URL scheme a already belongs to kind ant"},
		"upper case":        {[]sinks.Kind{namedKind("Zoo", "zoo")}, `sink kind Zoo: "Zoo" must begin with a-z, and have only a-z, 0-9, +, . and -`},
		"no New":            {changed(func(k *sinks.Kind) { k.New = nil }), "the function New is missing"},
		"no FromURL":        {changed(func(k *sinks.Kind) { k.FromURL = nil }), "only one of Schemes and FromURL"},
		"no scheme":         {changed(func(k *sinks.Kind) { k.Schemes = nil }), "only one of Schemes and FromURL"},
		"two fields":        {changed(func(k *sinks.Kind) { k.Fields = append(k.Fields, k.Fields...) }), "field text: two fields have this name"},
		"field name":        {with(settings.Field{Name: "maxSize", Type: settings.TypeInt}), `the name "maxSize" is not in lower_snake_case`},
		"field type":        {with(settings.Field{Name: "f", Type: "float"}), `field f: the type "float" is not known`},
		"field limit":       {with(settings.Field{Name: "f", Type: settings.TypeInt, Min: "1s"}), `field f: the limit "1s" is not a number of type int`},
		"limit of a text":   {with(settings.Field{Name: "f", Type: settings.TypeString, Max: "9"}), `field f: the limit "9" is not a number of type string`},
		"default type":      {with(settings.Field{Name: "f", Type: settings.TypeInt, Default: "x"}), "field f: the default must be a whole number"},
		"default off":       {with(settings.Field{Name: "f", Type: settings.TypeInt, Default: "1", Min: "2"}), "field f: the default must be at least 2"},
		"default no choice": {with(settings.Field{Name: "f", Type: settings.TypeString, Default: "x", Choices: []string{"y"}}), "field f: the default must be one of y"},
	}
	for name, test := range tests {
		_, err := sinks.NewRegistry(test.kinds...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
