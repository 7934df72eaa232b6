// Package deploy has no code. Its tests check the files in this folder.
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
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

// The examples take secrets from the environment or from files.
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

// The unit's program needn't be installed. systemd ignores settings that it is too old for, and prints
// a warning.
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

// A budget or a policy that selects no pod would protect nothing, without any warning.
func TestSelectorsSelectTheRelays(t *testing.T) {
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

// configMap returns the relay's configuration from a Kubernetes example.
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

// chartConfig returns the chart's default configuration with a sink added.
func chartConfig(t *testing.T) string {
	t.Helper()
	values, _ := documents(t, "helm/rowrelay/values.yaml")[0]["config"].(map[string]any)
	values["sinks"] = map[string]any{"lines": map[string]any{"type": "stdout"}} // the chart has none
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No test runs a release. This test checks that the release's configuration files
// are YAML and name existing files.
func TestReleaseFilesExist(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../.github/workflows/ci.yaml", "../.github/workflows/release.yaml", "../.github/dependabot.yml"} {
		documents(t, name)
	}
	var files []string
	for _, archive := range releaseFile(t).Archives {
		files = append(files, archive.Files...)
	}
	for _, image := range releaseFile(t).Images {
		files = append(files, image.Dockerfile)
	}
	for _, file := range files {
		if strings.HasPrefix(file, "NOTICES") {
			continue // created by a step of the release, see TestReleaseHasLicences
		}
		if found, err := filepath.Glob("../" + file); err != nil || len(found) == 0 {
			t.Errorf("the release's file %s: %v, %v", file, found, err)
		}
	}
}

// release has the parts of .goreleaser.yaml that the tests read.
type release struct {
	Builds   []struct{ ID, Dir, Binary string }
	Archives []struct {
		ID         string
		IDs, Files []string
	}
	Images []struct {
		ID, Dockerfile string
		IDs            []string
	} `yaml:"dockers_v2"`
}

func releaseFile(t *testing.T) (r release) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A release builds each official plug-in, and its archive and its image of plug-ins contain all of them.
func TestReleaseHasTheOfficialPlugins(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../plugins/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("found the plug-ins %v, %v", modules, err)
	}
	r := releaseFile(t)
	archive, image := r.Archives[1], r.Images[1]
	if archive.ID != "plugins" || image.ID != "plugins" {
		t.Fatalf("the second archive is %s, and the second image %s", archive.ID, image.ID)
	}
	for _, module := range modules {
		name := filepath.Base(filepath.Dir(module))
		id, built := "rowrelay-plugin-"+name, false
		for _, build := range r.Builds {
			built = built || build.ID == id && build.Dir == "plugins/"+name && build.Binary == id
		}
		if !built || !slices.Contains(archive.IDs, id) || !slices.Contains(image.IDs, id) {
			t.Errorf("%s is built: %v; in the archive: %v; in the image: %v", id, built, slices.Contains(archive.IDs, id), slices.Contains(image.IDs, id))
		}
	}
}

// Images are named with their digest, and actions of workflows by their commit, because a tag can be
// moved.
func TestImagesAndActionsArePinned(t *testing.T) {
	t.Parallel()
	fetched := regexp.MustCompile(`(?m)^(?:FROM| +-? ?(?:image|uses):) +(\S+)`)
	pinned := regexp.MustCompile(`^\S+(@sha256:[0-9a-f]{64}|@[0-9a-f]{40})$`)
	ours := regexp.MustCompile(`^(scratch|build|rowrelay(:latest)?|shop:latest)$`) // not pinned: build is a stage of the image, and .ci/pin adds the digest to a release's rowrelay
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
		t.Errorf("found only %d images and actions", found)
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

// A release contains the licences of the modules in its programs.
func TestReleaseHasLicences(t *testing.T) {
	t.Parallel()
	for folder, modules := range map[string][]string{
		"cmd/rowrelay": {"github.com/jackc/pgx/v5 v", "modernc.org/sqlite v", "github.com/hashicorp/go-plugin v"},
		"plugins/nats": {"github.com/nats-io/nats.go v", "github.com/hashicorp/go-plugin v"},
	} {
		all, err := exec.Command("../.ci/notices", folder).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(modules, "Go go1.", "Mozilla Public License") {
			if !bytes.Contains(all, []byte("\n"+want)) {
				t.Errorf("%q isn't among the licences of %s", want, folder)
			}
		}
		if bytes.Contains(all, []byte("\ngithub.com/rowrelay/")) {
			t.Errorf("rowrelay's own modules are among the licences of %s", folder)
		}
	}
	for _, file := range []string{"NOTICES.txt", "NOTICES-plugins.txt"} {
		if release := read(t, "../.goreleaser.yaml"); strings.Count(release, file) != 2 {
			t.Errorf("a release doesn't create the licences %s, or doesn't contain them", file)
		}
	}
}

// go.mod names the oldest Go that works. A release must be built with a newer version, and checked for vulnerabilities
// with one, because newer versions fix vulnerabilities.
func TestNewestGoBuildsReleases(t *testing.T) {
	t.Parallel()
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	for file, job := range map[string]string{"release.yaml": "release", "ci.yaml": "vulnerabilities"} {
		var workflow struct {
			Jobs map[string]struct {
				Steps []struct{ With map[string]any }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, "../.github/workflows/"+file)), &workflow); err != nil {
			t.Fatal(err)
		}
		newest := false
		for _, step := range workflow.Jobs[job].Steps {
			newest = newest || step.With["go-version"] == minor+".x" && step.With["check-latest"] == true
		}
		if !newest {
			t.Errorf("the job %s of %s doesn't take the newest patch of Go %s", job, file, minor)
		}
	}
}

// The runbook's first commands work outside of the systemd unit, with the unit's
// files.
func TestRunbookCommandsRun(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for _, name := range []string{"bin", "etc"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bin, etc := filepath.Join(directory, "bin"), filepath.Join(directory, "etc")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/rowrelay").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for name, content := range map[string]string{"rowrelay.yaml": read(t, "systemd/rowrelay.yaml"), "database": "sqlite://" + filepath.Join(directory, "shop.db")} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var commands []string
	for line := range strings.Lines(strings.SplitN(read(t, "RUNBOOK.md"), "\n## ", 2)[0]) {
		if command, indented := strings.CutPrefix(line, "    "); indented && !strings.HasPrefix(command, "curl") {
			commands = append(commands, strings.ReplaceAll(command, "/etc/rowrelay", etc))
		}
	}
	if len(commands) < 3 {
		t.Fatalf("the runbook begins with %q", commands)
	}
	commands = slices.Insert(commands, 1, "rowrelay migrate up --config rowrelay.yaml\n") // the unit runs it before the relay
	script := exec.CommandContext(t.Context(), "sh", "-e")
	script.Stdin, script.Env = strings.NewReader(strings.Join(commands, "")), []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + directory}
	if output, err := script.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
