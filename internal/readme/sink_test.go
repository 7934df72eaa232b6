package readme

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The sink in the pages passes the conformance suite.
func TestSinkInThePagesConforms(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "go") {
		if strings.HasPrefix(b.text, "package copysink\n") {
			testSink(t, b)
			return
		}
	}
	t.Error("the pages show no sink")
}

func testSink(t *testing.T, b block) {
	t.Helper()
	here, err := filepath.Abs(".")
	check(t, err)
	dir := t.TempDir()
	program := filepath.Join(dir, "copysink.go")
	check(t, os.WriteFile(program, []byte(source(b)), 0o600))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "copysink", "copysink.go"):      program,
		filepath.Join(here, "copysink", "copysink_test.go"): filepath.Join(here, "testdata", "copysink_test.go.txt"),
	}})
	check(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	check(t, os.WriteFile(overlay, text, 0o600))
	binary := filepath.Join(dir, "copysink.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binary, "./copysink").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	suite := exec.Command(binary, "-test.v")
	suite.Dir = dir
	out, err := suite.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if passed := strings.Count(string(out), "--- PASS"); passed < 5 {
		t.Errorf("only %d tests passed:\n%s", passed, out)
	}
}
