package grammar

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// program returns the value of a variable, and skips the test if it isn't set.
func program(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("%s is not set: make proof-sql sets it", variable)
	}
	return value
}

// write writes each text to a file of its own in a new folder, and returns the files' names.
func write(t *testing.T, folder string, texts []string) (names []string) {
	t.Helper()
	check(t, os.MkdirAll(folder, 0o700))
	for i, text := range texts {
		name := filepath.Join(folder, fmt.Sprintf("%04d.sql", i))
		check(t, os.WriteFile(name, []byte(text), 0o600))
		names = append(names, name)
	}
	return names
}

// sqlServerVersions has the names that ScriptDom's grammars have in its command: of the oldest server that we support, of
// the later ones, and of the newest grammar, which is newer than any server.
var sqlServerVersions = []string{"2016", "2017", "2019", "2022", "2025", "180"}

// Microsoft's parser accepts all SQL for SQL Server, in the grammar of each version, and refuses each statement that lacks a parenthesis.
func TestSQLServer(t *testing.T) {
	t.Parallel()
	tool := program(t, "ROWRELAY_TEST_SCRIPTDOM")
	all := statements(t, dialect.SQLServer(), splitSQLServer)
	var right, wrong []string
	for _, s := range all {
		right, wrong = append(right, s.sql), append(wrong, broken(s.sql))
	}
	for _, version := range sqlServerVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for name, reason := range scriptDom(t, tool, version, right) {
				t.Errorf("%s: %s\n%s", all[name].where, reason, all[name].sql)
			}
			refused := scriptDom(t, tool, version, wrong)
			for i, s := range all {
				if refused[i] == "" {
					t.Errorf("%s: the parser accepts this statement without its last parenthesis:\n%s", s.where, wrong[i])
				}
			}
			t.Logf("%d batches accepted, %d broken ones refused", len(right), len(refused))
		})
	}
}

var unparsed = regexp.MustCompile(`(?m)/(\d{4})\.sql: could not be parsed.*?\. (\d+:\d+: .*)$`)

// scriptDom returns the reasons why ScriptDom refuses texts, by their numbers.
func scriptDom(t *testing.T, tool, version string, texts []string) map[int]string {
	t.Helper()
	folder := t.TempDir()
	names := write(t, filepath.Join(folder, "sql"), texts)
	settings := filepath.Join(folder, "settings.json")
	check(t, os.WriteFile(settings, []byte(`{"initialQuotedIdentifiers": true}`), 0o600))
	out, err := exec.CommandContext(t.Context(), tool, append([]string{"--check", "--config", settings, "--parser-version", version}, names...)...).CombinedOutput()
	if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) { // 1: a text can't be parsed, or would be formatted differently
		t.Fatalf("%s: %v\n%s", tool, err, out)
	}
	reasons := map[int]string{}
	for _, found := range unparsed.FindAllStringSubmatch(string(out), -1) {
		i, err := strconv.Atoi(found[1])
		check(t, err)
		reasons[i] = found[2]
	}
	if strings.Count(string(out), "could not be parsed") != len(reasons) {
		t.Fatalf("found the reason for only %d of the refused texts in:\n%s", len(reasons), out)
	}
	return reasons
}
