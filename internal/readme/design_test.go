package readme

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile("`([a-z_]+\\.go)`")

// relay/DESIGN.md's map has every file of the engine, and no others.
func TestTheFileMapIsComplete(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "relay/DESIGN.md").text, "\n## The files")
	table, _, ended := strings.Cut(table, "\n## ")
	if !ended {
		t.Fatal("relay/DESIGN.md has no section The files")
	}
	mapped := map[string]int{}
	for _, m := range fileName.FindAllStringSubmatch(table, -1) {
		mapped[m[1]]++
	}
	files, err := filepath.Glob(filepath.Join(root, "relay/*.go"))
	check(t, err)
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if mapped[name] != 1 {
			t.Errorf("relay/%s is %d times in the map of relay/DESIGN.md, want once", name, mapped[name])
		}
		delete(mapped, name)
	}
	for name := range mapped {
		t.Errorf("the map of relay/DESIGN.md has %s, which doesn't exist", name)
	}
}

// The files in the first table of relay/DESIGN.md call only files below them. The exception is the loop, run.go.
// No file in the first table calls a file in the second table.
func TestCallsGoDownTheFileMap(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "relay/DESIGN.md").text, "\n## The files")
	table, _, _ = strings.Cut(table, "\n## ")
	way, beside, _ := strings.Cut(table, "outside the path:")
	rank := map[string]int{}
	for i, m := range fileName.FindAllStringSubmatch(way, -1) {
		rank[m[1]] = i
	}
	for _, m := range fileName.FindAllStringSubmatch(beside, -1) {
		rank[m[1]] = -1
	}
	for call := range callsBetweenFiles(t, filepath.Join(root, "relay")) {
		from, to := rank[call.from], rank[call.to]
		if call.from != "run.go" && from >= 0 && to < from {
			t.Errorf("%s, which is above it in the map of relay/DESIGN.md, or outside the path", call)
		}
	}
}

type call struct{ from, name, to string }

func (c call) String() string { return c.from + " calls " + c.name + " of " + c.to }

// callsBetweenFiles returns each use of a package's function or method in another file than the one that
// declares it.
func callsBetweenFiles(t *testing.T, folder string) map[call]bool {
	t.Helper()
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	check(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			check(t, err)
			files = append(files, file)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil), Error: func(error) {}} // errors about other packages don't matter
	pkg, _ := config.Check("relay", set, files, info)
	calls := map[call]bool{}
	for use, of := range info.Uses {
		from, to := filepath.Base(set.Position(use.Pos()).Filename), filepath.Base(set.Position(of.Pos()).Filename)
		if _, ok := of.(*types.Func); ok && of.Pkg() == pkg && from != to {
			calls[call{from, of.Name(), to}] = true
		}
	}
	if len(calls) < 100 {
		t.Errorf("only %d calls were found", len(calls))
	}
	return calls
}

var (
	started = regexp.MustCompile(`\bstart\(e\.((?:\w+\.)?\w+)\)|(q\.work)\(|\{[br]\.((?:read|claim)er)\}`)
	channel = regexp.MustCompile(`(?m)^\t(\w+) +(?:<-)?chan `)
)

// relay/DESIGN.md's table of owners names each goroutine and each channel of the engine.
func TestGoroutinesAndChannelsAreExplained(t *testing.T) {
	t.Parallel()
	design, code := read(t, "relay/DESIGN.md").text, ""
	for _, stage := range []string{"run", "engine", "read", "rows", "queue", "settle", "leaser", "worker"} {
		code += read(t, "relay/"+stage+".go").text
	}
	_, owners, _ := strings.Cut(design, "\n## Who owns what")
	owners, _, _ = strings.Cut(owners, "\n## ")
	var names []string
	for _, m := range started.FindAllStringSubmatch(code, -1) {
		names = append(names, m[1]+m[2]+m[3])
	}
	for _, m := range channel.FindAllStringSubmatch(code, -1) {
		names = append(names, m[1])
	}
	if len(names) < 16 {
		t.Errorf("only %v were found", names)
	}
	for _, name := range names {
		if !strings.Contains(owners, "`"+name+"`") {
			t.Errorf("relay/DESIGN.md has no owner of %s", name)
		}
	}
}

var identifier = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)?)`")

// Every identifier in the engine's pages exists in the code.
func TestNamesInTheRulesExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, folder := range []string{"relay", "relay/storage", "relay/sqlstore", "internal/backend", "relay/storetest", "sinks", "internal/config", "cmd/rowrelay", "outbox/dialect"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		check(t, err)
		for _, file := range files {
			code.WriteString(read(t, folder+"/"+filepath.Base(file)).text)
		}
	}
	found := identifier.FindAllStringSubmatch(read(t, "relay/DESIGN.md").text+read(t, "relay/README.md").text, -1)
	if len(found) < 100 {
		t.Errorf("only %d names were found", len(found))
	}
	for _, m := range found {
		for part := range strings.SplitSeq(m[1], ".") {
			if !regexp.MustCompile(`\b` + part + `\b`).MatchString(code.String()) {
				t.Errorf("a page of the engine names %s, which isn't in the code", m[1])
			}
		}
	}
}
