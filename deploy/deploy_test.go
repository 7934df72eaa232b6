// Package deploy has no code. Its test keeps the examples beside it working.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// The secrets that the examples take from the environment, or from files.
func TestConfigurationsAreValid(t *testing.T) {
	credentials := t.TempDir()
	database := filepath.Join(credentials, "database")
	if err := os.WriteFile(database, []byte("postgres://shop:secret@localhost/shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", credentials)
	t.Setenv("POSTGRES_PASSWORD", "secret")
	kinds, err := sinks.NewRegistry(stdout.Kind())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"docker/rowrelay.yaml":      read(t, "docker/rowrelay.yaml"),
		"systemd/rowrelay.yaml":     read(t, "systemd/rowrelay.yaml"),
		"kubernetes/sidecar.yaml":   strings.ReplaceAll(configMap(t, "kubernetes/sidecar.yaml"), "/run/secrets/rowrelay/database", database),
		"kubernetes/relays.yaml":    strings.ReplaceAll(configMap(t, "kubernetes/relays.yaml"), "/run/secrets/rowrelay/database", database),
		"helm/rowrelay/values.yaml": strings.ReplaceAll(chartConfig(t), "/run/secrets/rowrelay/database", database),
	} {
		parsed, err := config.Parse(name, []byte(content), kinds)
		if err != nil {
			t.Errorf("%v", err)
		} else if len(parsed.Sources) != 1 || parsed.Sources[0].Name != "shop" {
			t.Errorf("%s: sources %v, want the shop's", name, parsed.Sources)
		}
	}
}

func TestManifestsAreYAML(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".yaml" && filepath.Base(filepath.Dir(name)) != "templates" {
			found++
			if documents(t, name) == nil {
				t.Errorf("%s has no document", name)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("found %d files, %v", found, err)
	}
}

// The unit's program needn't be there; settings that this systemd is too old
// for are passed over by it, with a word.
func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	unit := filepath.Join(t.TempDir(), "rowrelay.service")
	content := strings.ReplaceAll(read(t, "systemd/rowrelay.service"), "/usr/local/bin/rowrelay", "/bin/true")
	if err := os.WriteFile(unit, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), verify, "verify", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze verify: %v", err)
	}
	for line := range strings.Lines(string(output)) {
		if !strings.Contains(line, "RestartSteps") && !strings.Contains(line, "RestartMaxDelaySec") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
}

// A budget or a policy that selects no pod would protect nothing, without a word.
func TestRelaysAreSelected(t *testing.T) {
	t.Parallel()
	kinds := map[string]any{}
	for _, document := range documents(t, "kubernetes/relays.yaml") {
		kinds[document["kind"].(string)] = document["spec"]
	}
	at := func(kind string, path ...string) any {
		value := kinds[kind]
		for _, name := range path {
			value = value.(map[string]any)[name]
		}
		return value
	}
	labels := at("Deployment", "template", "metadata", "labels")
	for kind, selected := range map[string]any{
		"Deployment":          at("Deployment", "selector", "matchLabels"),
		"PodDisruptionBudget": at("PodDisruptionBudget", "selector", "matchLabels"),
		"NetworkPolicy":       at("NetworkPolicy", "podSelector", "matchLabels"),
	} {
		if !reflect.DeepEqual(selected, labels) {
			t.Errorf("the %s selects %v, the relays' pods have %v", kind, selected, labels)
		}
	}
}

// configMap returns the relay's configuration out of a Kubernetes example.
func configMap(t *testing.T, name string) string {
	t.Helper()
	for _, document := range documents(t, name) {
		if document["kind"] == "ConfigMap" {
			return document["data"].(map[string]any)["rowrelay.yaml"].(string)
		}
	}
	t.Fatalf("%s has no ConfigMap", name)
	return ""
}

// chartConfig is the configuration that the chart has by default.
func chartConfig(t *testing.T) string {
	t.Helper()
	text, err := yaml.Marshal(documents(t, "helm/rowrelay/values.yaml")[0]["config"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Nothing here runs the release's files: they are YAML, and name files that are there.
func TestReleaseFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../.github/workflows/ci.yaml", "../.github/workflows/release.yaml", "../.github/dependabot.yml"} {
		documents(t, name)
	}
	release := documents(t, "../.goreleaser.yaml")[0]
	files := release["archives"].([]any)[0].(map[string]any)["files"].([]any)
	files = append(files, release["dockers_v2"].([]any)[0].(map[string]any)["dockerfile"])
	for _, file := range files {
		if file == "NOTICES.txt" {
			continue // is made before, see TestLicences
		}
		if _, err := os.Stat("../" + file.(string)); err != nil {
			t.Error(err)
		}
	}
}

// Whatever is fetched by name, an image or a workflow's action, is named by its digest or commit, too: a tag can be moved.
func TestPinned(t *testing.T) {
	t.Parallel()
	fetched := regexp.MustCompile(`(?m)^(?:FROM| +-? ?(?:image|uses):) +(\S+)`)
	pinned := regexp.MustCompile(`^\S+(@sha256:[0-9a-f]{64}|@[0-9a-f]{40})$`)
	ours := regexp.MustCompile(`^(scratch|rowrelay(:latest)?|shop:latest)$`) // .ci/pin has the release's rowrelay by its digest
	found := 0
	for _, pattern := range []string{"docker/*", "kubernetes/*", "compose.test.yaml", "../.github/workflows/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			for _, match := range fetched.FindAllStringSubmatch(read(t, file), -1) {
				if found++; !pinned.MatchString(match[1]) && !ours.MatchString(match[1]) {
					t.Errorf("%s: %s has no digest", file, match[1])
				}
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d images and actions only", found)
	}
}

func documents(t *testing.T, name string) (all []map[string]any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewBufferString(read(t, name)), yaml.Strict())
	for {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, document)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A release brings the licences of what its program is made of.
func TestLicences(t *testing.T) {
	t.Parallel()
	all, err := exec.Command("../.ci/notices").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngithub.com/jackc/pgx/v5 v", "\nmodernc.org/sqlite v", "\ngithub.com/hashicorp/go-plugin v", "\nGo go1.", "Mozilla Public License"} {
		if !bytes.Contains(all, []byte(want)) {
			t.Errorf("%q isn't among the licences", want)
		}
	}
	if bytes.Contains(all, []byte("\ngithub.com/rowrelay/")) {
		t.Error("our own modules are among the others")
	}
	if release := read(t, "../.goreleaser.yaml"); strings.Count(release, "NOTICES.txt") != 2 {
		t.Error("a release doesn't make the licences, or doesn't bring them")
	}
}
