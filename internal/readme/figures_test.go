package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// measured is a figure as internal/bench records it.
type measured struct {
	Row, What, Value, Reference, Goal, On string
	Ratio                                 float64
	Met                                   bool
}

// figures is the table of all that internal/bench has measured.
func figures(t testing.TB) string {
	t.Helper()
	return tableOf(recorded(t))
}

// goals is the table of what has a goal, also of what missed it.
func goals(t testing.TB) string {
	t.Helper()
	return tableOf(slices.DeleteFunc(recorded(t), func(f measured) bool { return f.Goal == "" }))
}

func recorded(t testing.TB) (all []measured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "internal/bench/figures.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &all))
	if len(all) == 0 {
		t.Fatal("internal/bench/figures.json has no figure")
	}
	return all
}

func tableOf(all []measured) string {
	var lines strings.Builder
	lines.WriteString("| | what | measured | against | goal | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range all {
		fmt.Fprintf(&lines, "| %s | %s | %s | %s | %s | %s |\n", f.Row, f.What, f.Value, f.against(), f.Goal, f.verdict())
	}
	fmt.Fprintf(&lines, "\nMeasured on %s.\n", all[len(all)-1].On)
	return lines.String()
}

func (f measured) against() string {
	if f.Reference == "" {
		return ""
	}
	return fmt.Sprintf("%.2f of %s", f.Ratio, f.Reference)
}

func (f measured) verdict() string {
	switch {
	case f.Goal == "":
		return ""
	case f.Met:
		return "met"
	default:
		return "**missed**"
	}
}
