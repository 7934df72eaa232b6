package arrows

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shared lists modules that rowrelay itself requires and that an official plug-in may use, too.
var shared = map[string]bool{"google.golang.org/grpc": true, "google.golang.org/protobuf": true} // the protocol of plug-ins, and Pub/Sub

// The client library of an official plug-in is only in the plug-in's own go.mod file, so a program that writes
// messages, embeds the relay or runs it doesn't get the library.
func TestPluginsKeepTheirLibraries(t *testing.T) {
	t.Parallel()
	modules, err := filepath.Glob("../../plugins/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("found the plug-ins %v, %v", modules, err)
	}
	elsewhere := map[string]string{}
	for _, file := range []string{"../../go.mod", "../../outbox/go.mod"} {
		for path := range requires(t, file) {
			elsewhere[path] = file
		}
	}
	for _, module := range modules {
		for path, direct := range requires(t, module) {
			file, there := elsewhere[path]
			if ours := strings.HasPrefix(path, "github.com/rowrelay/"); direct && there && !ours && !shared[path] {
				t.Errorf("%s requires %s, which only %s should require", file, path, module)
			}
		}
	}
}

// requires returns the paths of the modules that a go.mod file requires, and whether a package of the module imports them.
func requires(t *testing.T, file string) map[string]bool {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	var parsed struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &parsed); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	found := map[string]bool{}
	for _, r := range parsed.Require {
		found[r.Path] = !r.Indirect
	}
	return found
}
