package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

var buildDir string

func runTests(m *testing.M) int {
	var err error
	if buildDir, err = os.MkdirTemp("", "rowrelay-readme-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	return m.Run()
}

// command builds the rowrelay command and returns its folder.
var command = sync.OnceValues(func() (folder string, err error) {
	if out, err := exec.Command("go", "build", "-o", buildDir+string(filepath.Separator), root+"/cmd/rowrelay").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return buildDir, nil
})

// Each command in the shell examples exists and has the flags that the examples use.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	folder, err := command()
	check(t, err)
	helps := map[string]string{}
	found := 0
	for _, b := range blocks(t, "sh") {
		for _, words := range calls(b.text) {
			found++
			path, flags := parts(words)
			help, ok := helps[path]
			if !ok {
				out, err := exec.Command(filepath.Join(folder, "rowrelay"), append(strings.Fields(path), "--help")...).CombinedOutput()
				check(t, err)
				help, helps[path] = string(out), string(out)
			}
			if !strings.Contains(help, "  rowrelay "+path) {
				t.Errorf("%s: the command rowrelay %s doesn't exist", b.place, path)
			}
			for _, flag := range flags {
				if !regexp.MustCompile(`(?m)^ +(-\w, )?` + flag + ` `).MatchString(help) {
					t.Errorf("%s: rowrelay %s has no flag %s", b.place, path, flag)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found in the pages", found)
	}
}

var (
	comment   = regexp.MustCompile(`(?m)(^| )#.*$`)
	separator = regexp.MustCompile(`\||&&|;|\n`)
	quoted    = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// calls returns the words of each call of rowrelay in a script.
func calls(script string) (found [][]string) {
	script = comment.ReplaceAllString(strings.ReplaceAll(script, "\\\n", " "), "")
	script = quoted.ReplaceAllStringFunc(script, func(text string) string { return "Q" + strings.Repeat("q", len(text)) })
	for _, one := range separator.Split(script, -1) {
		words := strings.Fields(one)
		for i, word := range words {
			if word == "rowrelay" || strings.HasSuffix(word, "./cmd/rowrelay") {
				found = append(found, words[i+1:])
				break
			}
		}
	}
	return found
}

// subcommands has the first words of all commands that have two words.
var subcommands = map[string]bool{"migrate": true, "messages": true}

// parts splits a call into the command's name and its flags.
func parts(words []string) (path string, flags []string) {
	n := min(1, len(words))
	if n == 1 && subcommands[words[0]] {
		n = min(2, len(words))
	}
	for _, word := range words[n:] {
		if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") {
			flags = append(flags, flag)
		}
	}
	return strings.Join(words[:n], " "), flags
}

// The test runs all scripts that are marked to be run. They run one after another in one
// folder, with the same SQLite file.
func TestScriptsRun(t *testing.T) {
	t.Parallel()
	folder, err := command()
	check(t, err)
	dir, ran := t.TempDir(), 0
	for _, b := range blocks(t, "sh") {
		if !b.run {
			continue
		}
		ran++
		script := exec.Command("sh", "-eu", "-c", b.text)
		script.Dir = dir
		script.Env = append(os.Environ(), "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := script.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", b.place, err, out)
		}
		t.Logf("%s:\n%s", b.place, out)
	}
	if ran == 0 {
		t.Error("no script is marked to be run")
	}
}

func TestCallsAreFound(t *testing.T) {
	t.Parallel()
	got := calls("# rowrelay no\necho '{\"a\": 1}' | rowrelay enqueue \\\n  --database sqlite:x  # rowrelay no\ngo run ./cmd/rowrelay demo && rowrelay messages list --state error\n")
	want := "[[enqueue --database sqlite:x] [demo] [messages list --state error]]"
	if fmt.Sprint(got) != want {
		t.Errorf("calls = %v, want %s", got, want)
	}
	if path, flags := parts(got[2]); path != "messages list" || fmt.Sprint(flags) != "[--state]" {
		t.Errorf("parts = %q, %v", path, flags)
	}
}
