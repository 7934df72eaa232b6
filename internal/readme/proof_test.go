package readme

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/proof"
)

// proofLine is a line of the table in docs/proof.md: the results of all scenes with the same servers,
// destination and claim mode.
type proofLine struct {
	last    proof.Result // the latest of them
	ordered bool         // an order was promised in some of them
	scenes  map[string]*proofScene
	faults  map[string]int
	proof.Verdict
}

// proofScene is what the line contains of one test.
type proofScene struct {
	last proof.Result
	runs int
}

// proofResults reads docs/proof/results.jsonl.
func proofResults(t testing.TB) (all []proof.Result) {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "docs/proof/results.jsonl"))
	check(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r proof.Result
		check(t, json.Unmarshal(lines.Bytes(), &r))
		if strings.HasSuffix(r.Commit, "-dirty") {
			t.Errorf("docs/proof/results.jsonl: %s has run on changes that are in no commit", r.File)
		}
		all = append(all, r)
	}
	check(t, lines.Err())
	return all
}

// proofLines returns the table's lines, sorted, and their sum.
func proofLines(t testing.TB) (lines []*proofLine, sum *proofLine) {
	t.Helper()
	sum = &proofLine{faults: map[string]int{}}
	type group struct{ server, topology, sink, claim string }
	found, counted := map[group]*proofLine{}, map[string]bool{}
	for _, r := range proofResults(t) {
		g := group{r.Server, r.Topology, r.Sink, r.Claim}
		line := found[g]
		if line == nil {
			line = &proofLine{scenes: map[string]*proofScene{}, faults: map[string]int{}}
			found[g] = line
			lines = append(lines, line)
		}
		name, _, _ := strings.Cut(r.Scene, "/")
		scene := line.scenes[name]
		if scene == nil {
			scene = &proofScene{}
			line.scenes[name] = scene
		}
		scene.runs++
		scene.last, line.last = latest(scene.last, r), latest(line.last, r)
		line.ordered = line.ordered || r.Ordered
		run := fmt.Sprint(r.Scene, r.Began) // destinations of one run share its faults
		for of, name := range map[*proofLine]string{line: fmt.Sprint(g, run), sum: run} {
			of.add(r.Verdict)
			if counted[name] {
				continue
			}
			counted[name] = true
			for kind, times := range r.Faults {
				of.faults[kind] += times
			}
		}
	}
	slices.SortFunc(lines, func(a, b *proofLine) int {
		return cmp.Or(cmp.Compare(a.last.Topology, b.last.Topology), cmp.Compare(a.last.Server, b.last.Server), cmp.Compare(a.last.Sink, b.last.Sink), cmp.Compare(a.last.Claim, b.last.Claim))
	})
	return lines, sum
}

func latest(a, b proof.Result) proof.Result {
	if a.Began.After(b.Began) {
		return a
	}
	return b
}

func (l *proofLine) add(v proof.Verdict) {
	l.Messages += v.Messages
	l.Lost += v.Lost
	l.Reordered += v.Reordered
	l.Uncommitted += v.Uncommitted
	l.Duplicates += v.Duplicates
	l.Outside += v.Outside
	l.Fenced += v.Fenced
	l.Owned += v.Owned
	l.Undone += v.Undone
}

// happened lists the faults, the most frequent kind first.
func (l *proofLine) happened() string {
	kinds := slices.SortedFunc(maps.Keys(l.faults), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.faults[b], l.faults[a]), cmp.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %s", thousands(float64(l.faults[kind])), strings.ReplaceAll(kind, "_", " "))
	}
	return strings.Join(kinds, ", ")
}

// proofs returns the table of results.
func proofs(t testing.TB) string {
	t.Helper()
	lines, sum := proofLines(t)
	all := 0
	for _, times := range sum.faults {
		all += times
	}
	count := func(n int) string { return thousands(float64(n)) }
	var table strings.Builder
	table.WriteString("| | database | topology | to | claim | messages | faults | lost | reordered | outside | fenced | duplicates | commits lost | commit | date |\n" +
		"| --: | --- | --- | --- | --- | --: | --- | --: | --: | --: | --: | --: | --: | --- | --- |\n")
	for i, l := range lines {
		reordered, fenced := count(l.Reordered), count(l.Fenced)
		if !l.ordered {
			reordered = "–"
		}
		if l.Owned+l.Fenced == 0 {
			fenced = "–"
		}
		fmt.Fprintf(&table, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | `%s` | %s |\n", i+1, l.last.Server, l.last.Topology, l.last.Sink, l.last.Claim,
			count(l.Messages), l.happened(), count(l.Lost+l.Uncommitted), reordered, count(l.Outside), fenced, count(l.Duplicates), count(l.Undone), l.last.Commit, l.last.Began.Format("2006-01-02"))
	}
	fmt.Fprintf(&table, "| | **all** | | | | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | %s | %s | | |\n",
		count(sum.Messages), count(all), count(sum.Lost+sum.Uncommitted), count(sum.Reordered), count(sum.Outside), count(sum.Fenced), count(sum.Duplicates), count(sum.Undone))
	return table.String()
}

// proofCommands returns the table of the commands that repeat the lines of proofs.
func proofCommands(t testing.TB) string {
	t.Helper()
	lines, _ := proofLines(t)
	var table strings.Builder
	table.WriteString("| line | runs | command |\n| --- | --- | --- |\n")
	for i, l := range lines {
		for _, name := range slices.Sorted(maps.Keys(l.scenes)) {
			fmt.Fprintf(&table, "| %d | %d | `%s` |\n", i+1, l.scenes[name].runs, strings.ReplaceAll(l.scenes[name].last.Command, "|", `\|`))
		}
	}
	return table.String()
}
