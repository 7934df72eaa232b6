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

// measured is a figure as bench records it.
type measured struct {
	Row, What, Value, Reference, Goal, On string
	Ratio                                 float64
	Met                                   bool
}

// figures is the table of all that bench has measured.
func figures(t testing.TB) string {
	t.Helper()
	return tableOf(recorded(t))
}

// goals is the table of what has a goal, also of what missed it, folded below how
// many of each row met theirs.
func goals(t testing.TB) string {
	t.Helper()
	all := slices.DeleteFunc(recorded(t), func(f measured) bool { return f.Goal == "" })
	return summary(all) + "\n<details><summary>each of them</summary>\n\n" + tableOf(all) + "\n</details>\n"
}

// besideDebezium is the table of that scene.
func besideDebezium(t testing.TB) string {
	t.Helper()
	return tableOf(slices.DeleteFunc(recorded(t), func(f measured) bool { return f.Row != "debezium" }))
}

func summary(all []measured) string {
	var firsts []measured
	of, met := map[string]int{}, map[string]int{}
	for _, f := range all {
		if of[f.Row]++; of[f.Row] == 1 {
			firsts = append(firsts, f)
		}
		if f.Met {
			met[f.Row]++
		}
	}
	var lines strings.Builder
	lines.WriteString("| | for example | | against | goals met |\n| --- | --- | --- | --- | --- |\n")
	for _, f := range firsts {
		fmt.Fprintf(&lines, "| %s | %s | %s | %s | %d of %d |\n", f.Row, f.What, f.Value, f.against(), met[f.Row], of[f.Row])
	}
	return lines.String()
}

func recorded(t testing.TB) (all []measured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "bench/figures.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &all))
	if len(all) == 0 {
		t.Fatal("bench/figures.json has no figure")
	}
	return all
}

func tableOf(all []measured) string {
	var lines strings.Builder
	lines.WriteString("| | what | measured | against | goal | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, f := range all {
		fmt.Fprintf(&lines, "| %s | %s | %s | %s | %s | %s |\n", f.Row, f.What, f.Value, f.against(), f.Goal, f.verdict())
	}
	fmt.Fprintf(&lines, "\nMeasured on %s.\n", strings.Join(occasions(all), "; "))
	return lines.String()
}

// occasions are the dates and machines, each once.
func occasions(all []measured) (on []string) {
	for _, f := range all {
		on = append(on, f.On)
	}
	slices.Sort(on)
	return slices.Compact(on)
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
