package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

const exampleFile = "../../deploy/rowrelay.example.yaml"

func allKinds(t *testing.T) *sinks.Registry {
	t.Helper()
	registry, err := sinks.NewRegistry(discard.Kind(), file.Kind(), httpsink.Kind(), stdout.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

func TestTheExampleIsValid(t *testing.T) {
	t.Parallel()
	c, err := Load(exampleFile, allKinds(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Sources) != 2 || len(c.Sinks) != 5 || len(c.Routes) != 6 || c.Admin.Listen == "" {
		t.Errorf("got %+v", c)
	}
	if routed := c.SinksOf("jobs"); len(routed) != 4 {
		t.Errorf("jobs has the sinks %v, want all but nowhere", routed)
	}
}

// The example file has every setting, some of them in comments. It shows only one ..._command, because every secret can come from
// a command in the same way.
func TestTheExampleIsComplete(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range everySetting(t) {
		if strings.HasSuffix(name, "_command") && name != "password_command" {
			continue
		}
		if !regexp.MustCompile(`(?m)^[ #-]*` + name + `:|[{ ]` + name + `: `).Match(content) {
			t.Errorf("%s isn't in it", name)
		}
	}
}

// No kind of sink has a setting whose name is also a relay's setting, because the relay's
// setting would hide it.
func TestKindsHaveNoSettingsOfRelays(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds(t).Kinds() {
		for _, own := range kind.Fields {
			if slices.Contains(names(sinkFields()), own.Name) {
				t.Errorf("%s has a setting %s, which is the relay's", kind.Name, own.Name)
			}
		}
	}
}

func everySetting(t *testing.T) []string {
	t.Helper()
	all := names(rootFields())
	for _, fields := range [][]string{names(sourceFields()), names(sinkFields()), names(backoffFields()), names(routeFields()), names(adminFields()), names(logFields())} {
		all = append(all, fields...)
	}
	for _, kind := range allKinds(t).Kinds() {
		all = append(all, names(settingFields(kind))...)
	}
	return all
}

// The test uncomments the commented settings one by one.
func TestCommentedSettingsOfTheExampleAreValid(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	setting := regexp.MustCompile(`^( *)# ([a-z_]+: \S.*)$`)
	tried := 0
	for i, line := range lines {
		parts := setting.FindStringSubmatch(line)
		if parts == nil || !known(t, parts[2]) {
			continue
		}
		tried++
		changed := append([]string{}, lines...)
		changed[i] = parts[1] + parts[2]
		_, err := Parse(exampleFile, []byte(strings.Join(changed, "\n")), allKinds(t))
		if err != nil && !acceptable(err.Error()) {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	if tried < 8 {
		t.Errorf("only %d comments were tried", tried)
	}
}

func known(t *testing.T, text string) bool {
	name, _, _ := strings.Cut(text, ":")
	for _, each := range everySetting(t) {
		if each == name {
			return true
		}
	}
	return false
}

// acceptable reports whether a problem is only about the example's placeholders, such as
// missing files.
func acceptable(problem string) bool {
	for _, part := range []string{"isn't set", "can't be read", "is given together with", "no such file", "password", "username", "belong together"} {
		if strings.Contains(problem, part) {
			return true
		}
	}
	return false
}
