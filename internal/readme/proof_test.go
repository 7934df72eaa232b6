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
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
)

// proofLine is a line of a table in docs/proof.md: the sum of several results.
type proofLine struct {
	last    proof.Result    // the latest result
	first   time.Time       // the time when the earliest run began
	ordered bool            // in at least one of the runs, an order was promised
	runs    map[string]bool // the runs; a run has a result for each destination
	commits map[string]bool
	servers map[string]bool
	options map[string]bool // the options of the runs' commands
	faults  map[string]int
	proof.Verdict
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

// proofGroup has what the results of a line have in common.
type proofGroup struct{ topology, server, scene, sink string }

// proofLines returns a line for each group of results, sorted by group.
func proofLines(t testing.TB, group func(proof.Result) proofGroup) (lines []*proofLine, groups []proofGroup) {
	t.Helper()
	found := map[proofGroup]*proofLine{}
	for _, r := range proofResults(t) {
		line := found[group(r)]
		if line == nil {
			line = &proofLine{first: r.Began, runs: map[string]bool{}, commits: map[string]bool{}, servers: map[string]bool{}, options: map[string]bool{}, faults: map[string]int{}}
			found[group(r)] = line
		}
		line.add(r)
	}
	groups = slices.SortedFunc(maps.Keys(found), func(a, b proofGroup) int {
		return cmp.Or(cmp.Compare(a.topology, b.topology), cmp.Compare(a.server, b.server), cmp.Compare(a.scene, b.scene), cmp.Compare(a.sink, b.sink))
	})
	for _, g := range groups {
		lines = append(lines, found[g])
	}
	return lines, groups
}

// add adds a result. Destinations of one run share its faults, which count once.
func (l *proofLine) add(r proof.Result) {
	if r.Began.After(l.last.Began) {
		l.last = r
	}
	if r.Began.Before(l.first) {
		l.first = r.Began
	}
	l.ordered = l.ordered || r.Ordered
	l.commits[r.Commit], l.servers[r.Server] = true, true
	_, options, _ := strings.Cut(r.Command, " -proof FOLDER")
	if options = strings.TrimSpace(strings.Replace(options, " -everywhere=true", "", 1)); options == "" {
		l.options["none"] = true
	} else {
		l.options["`"+options+"`"] = true
	}
	if run := fmt.Sprint(r.Scene, r.Began); !l.runs[run] {
		l.runs[run] = true
		for kind, times := range r.Faults {
			l.faults[kind] += times
		}
	}
	l.sum(r.Verdict)
}

// dates returns the first and the last date of the results.
func (l *proofLine) dates() string {
	first, last := l.first.Format(time.DateOnly), l.last.Began.Format(time.DateOnly)
	if first == last {
		return last
	}
	return first + " to " + last
}

func (l *proofLine) sum(v proof.Verdict) {
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

// proofs returns the table of results: a line for each database and topology.
func proofs(t testing.TB) string {
	t.Helper()
	lines, _ := proofLines(t, func(r proof.Result) proofGroup { return proofGroup{topology: r.Topology, server: r.Server} })
	sums, _ := proofLines(t, func(proof.Result) proofGroup { return proofGroup{} })
	sum, all := sums[0], 0
	for _, times := range sum.faults {
		all += times
	}
	count := func(n int) string { return thousands(float64(n)) }
	var table strings.Builder
	table.WriteString("| database | topology | messages | faults | lost | reordered | outside | fenced | duplicates | commits lost | commit | date |\n" +
		"| --- | --- | --: | --- | --: | --: | --: | --: | --: | --: | --- | --- |\n")
	for _, l := range lines {
		reordered, fenced := count(l.Reordered), count(l.Fenced)
		if !l.ordered {
			reordered = "–"
		}
		if l.Owned+l.Fenced == 0 {
			fenced = "–"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | `%s` | %s |\n", l.last.Server, l.last.Topology,
			count(l.Messages), l.happened(), count(l.Lost+l.Uncommitted), reordered, count(l.Outside), fenced, count(l.Duplicates), count(l.Undone),
			strings.Join(slices.Sorted(maps.Keys(l.commits)), "`, `"), l.dates())
	}
	fmt.Fprintf(&table, "| **all** | | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | %s | %s | | |\n",
		count(sum.Messages), count(all), count(sum.Lost+sum.Uncommitted), count(sum.Reordered), count(sum.Outside), count(sum.Fenced), count(sum.Duplicates), count(sum.Undone))
	return table.String()
}

// proofCommands returns the table of the scenes: a line for each test and destination.
func proofCommands(t testing.TB) string {
	t.Helper()
	lines, groups := proofLines(t, func(r proof.Result) proofGroup {
		scene, _, _ := strings.Cut(r.Scene, "/")
		return proofGroup{scene: scene, sink: r.Sink}
	})
	var table strings.Builder
	table.WriteString("| scene | to | databases | runs | messages | duplicates | options |\n| --- | --- | --: | --: | --: | --: | --- |\n")
	for i, l := range lines {
		fmt.Fprintf(&table, "| `%s` | %s | %d | %d | %s | %s | %s |\n", groups[i].scene, groups[i].sink, len(l.servers), len(l.runs),
			thousands(float64(l.Messages)), thousands(float64(l.Duplicates)), strings.Join(slices.Sorted(maps.Keys(l.options)), " or "))
	}
	return table.String()
}
