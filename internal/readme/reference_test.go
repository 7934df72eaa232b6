package readme

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var metricLine = regexp.MustCompile(`^(\w+)\{(.*)\} (\w+): (.*)$`)

// metricTable returns the table of metrics. It reads the golden file that the tests of relay/metrics compare the metrics with.
func metricTable(t testing.TB) string {
	t.Helper()
	var lines strings.Builder
	lines.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for line := range strings.Lines(read(t, "relay/metrics/testdata/names.golden").text) {
		m := metricLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Fatalf("relay/metrics/testdata/names.golden has the line %q", line)
		}
		fmt.Fprintf(&lines, "| `%s` | %s | %s | %s |\n", m[1], m[3], strings.ReplaceAll(m[2], ",", ", "), m[4])
	}
	return lines.String()
}

var (
	subcommand = regexp.MustCompile(`(?m)^  ([a-z]+) +(\S.*)$`)
	usageLine  = regexp.MustCompile(`(?m)^Usage:\n  (rowrelay .*)$`)
	flagName   = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`)
)

// commandTable returns the table of commands with their flags. It reads the golden files of the commands' help, and leaves out
// flags that the page describes once for all commands.
func commandTable(t testing.TB) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "cmd/rowrelay/testdata/rowrelay*.help.golden"))
	check(t, err)
	helps, summaries := map[string]string{}, map[string]string{}
	for _, file := range files {
		command := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".help.golden"), "_", " ")
		helps[command] = read(t, "cmd/rowrelay/testdata/"+filepath.Base(file)).text
		_, list, _ := strings.Cut(helps[command], "\nAvailable Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
			summaries[command+" "+m[1]] = m[2]
		}
	}
	var commands []string
	for command, help := range helps {
		if !strings.Contains(help, "\nAvailable Commands:\n") {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	var lines strings.Builder
	lines.WriteString("| command | what it does | flags |\n| --- | --- | --- |\n")
	for _, command := range commands {
		usage := usageLine.FindStringSubmatch(helps[command])
		if usage == nil || summaries[command] == "" {
			t.Fatalf("%s has no usage, or its parent's help doesn't list it", command)
		}
		var flags []string
		for _, m := range flagName.FindAllStringSubmatch(helps[command], -1) {
			if !slices.Contains([]string{"--help", "--database", "--config", "--source", "--table"}, m[1]) {
				flags = append(flags, "`"+m[1]+"`")
			}
		}
		fmt.Fprintf(&lines, "| `%s` | %s | %s |\n", strings.ReplaceAll(strings.TrimSuffix(usage[1], " [flags]"), "|", `\|`), summaries[command], strings.Join(flags, " "))
	}
	return lines.String()
}
