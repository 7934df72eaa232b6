package arrows

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// order lists the files of package relay from the top down: a file should use only declarations of
// files below it. The files of the first line wire all parts. The files of the second line claim by
// lanes or by rows; they are above the engine, because the engine calls them through an interface.
// Each file below the engine is a part with its own fields.
var order = strings.Fields(`
	relay run renew consumer
	rows read dedup quarantine lease admit passed apart bylanes blocked sweep scan
	stop drain send control outcome engine
	survey settle leaser controller join expire unrouted unwritable deadletter purge
	log fetch worker joiner queue breaker lane journaled route reader
	poll pauses clock base health options observer process answer text
`)

// pure lists the files of package relay that make decisions without using a clock, channel,
// goroutine or store.
var pure = strings.Fields("joiner breaker lane journaled reader expire deadletter answer text")

// These are the current numbers of exceptions, which may only fall.
const (
	upwardArrows = 10 // pairs of files in which the lower file uses the higher one
	embeddings   = 1  // embedded pointers to another struct of the package
)

func TestRelayUsesDownward(t *testing.T) {
	t.Parallel()
	relay, err := parseFolder(os.DirFS("../.."), "relay")
	if err != nil {
		t.Fatal(err)
	}
	upward, err := relay.upward(order)
	if err != nil {
		t.Fatal(err)
	}
	ratchet(t, "arrows upward", upward, upwardArrows)
	ratchet(t, "embedded structs", relay.embedded(), embeddings)
}

func TestPureFilesOfRelay(t *testing.T) {
	t.Parallel()
	relay, err := parseFolder(os.DirFS("../.."), "relay")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range relay.impure(pure) {
		t.Error(found)
	}
}

func ratchet(t *testing.T, what string, found []string, limit int) {
	t.Helper()
	if len(found) > limit {
		t.Errorf("%d %s, want at most %d:\n%s", len(found), what, limit, strings.Join(found, "\n"))
	}
	if len(found) < limit {
		t.Errorf("%d %s are left: lower the limit %d to this number", len(found), what, limit)
	}
}

func TestUpwardAndEmbedded(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"p/top.go": {Data: []byte(`package p
import "x/elsewhere"
type top struct { *middle; low; elsewhere.Other; value *bottom }
func (t *top) all() { t.first(); t.value.last() }
`)},
		"p/middle.go": {Data: []byte(`package p
type middle struct{ *top; number int }
func (m *middle) first() { m.number++; last() }
type low struct{}
`)},
		"p/bottom.go":   {Data: []byte("package p\ntype bottom struct{ m *middle }\nfunc last() {}\nfunc (b *bottom) last() { b.m.first() }\n")},
		"p/top_test.go": {Data: []byte("package p\nfunc tested() { last() }\n")},
	}
	p, err := parseFolder(tree, "p")
	if err != nil {
		t.Fatal(err)
	}
	for want, listed := range map[string][]string{
		"bottom.go uses middle.go for first, middle; middle.go uses top.go for top":                                               {"top", "middle", "bottom"},
		"middle.go uses bottom.go for last; top.go uses bottom.go for bottom, last; top.go uses middle.go for first, low, middle": {"bottom", "middle", "top"},
	} {
		got, err := p.upward(listed)
		if err != nil || strings.Join(got, "; ") != want {
			t.Errorf("upward in the order %v: %v, %v; want %s", listed, got, err, want)
		}
	}
	for _, incomplete := range [][]string{{"top", "middle"}, {"top", "middle", "bottom", "gone"}} {
		if got, err := p.upward(incomplete); err == nil {
			t.Errorf("the order %v was accepted: %v", incomplete, got)
		}
	}
	if got, want := strings.Join(p.embedded(), ", "), "middle embeds top, top embeds middle"; got != want {
		t.Errorf("embedded: %s; want %s", got, want)
	}
}

func TestImpure(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`import "time"; var day = 24 * time.Hour; func f(now time.Time) time.Time { return now.Add(day) }`: "",
		`import "time"; var began = time.Now()`:                "p.go uses time.Now",
		`import "time"; func f(t time.Time) { time.Until(t) }`: "p.go uses time.Until",
		`import "context"`:            "p.go imports context",
		`func f() { go f() }`:         "p.go starts a goroutine",
		`type t struct{ c chan int }`: "p.go has a channel",
		`func f() { select {} }`:      "p.go has a channel",
		`type b struct { store int }; func f(b *b) int { return b.store }`: "p.go uses store",
	} {
		p, err := parseFolder(fstest.MapFS{"p/p.go": {Data: []byte("package p; " + source)}}, "p")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.impure([]string{"p"}), ", "); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	if p, err := parseFolder(fstest.MapFS{}, "p"); err != nil || len(p.impure([]string{"gone"})) != 1 {
		t.Errorf("a pure file that isn't there: %v", err)
	}
}

// folder is a package's files without its tests.
type folder struct {
	files    []*ast.File
	names    []string             // the files' names without the folder
	declares map[types.Object]int // the file that declares each object of the package
	uses     map[*ast.Ident]int   // the file that uses each identifier
	means    map[*ast.Ident]types.Object
}

func parseFolder(tree fs.FS, name string) (*folder, error) {
	f := &folder{declares: map[types.Object]int{}, uses: map[*ast.Ident]int{}, means: map[*ast.Ident]types.Object{}}
	set := token.NewFileSet()
	err := eachSource(tree, func(file string, source []byte) error {
		if path.Dir(file) != name {
			return nil
		}
		parsed, err := parser.ParseFile(set, path.Base(file), source, parser.SkipObjectResolution)
		f.files, f.names = append(f.files, parsed), append(f.names, path.Base(file))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	// The type checker sees all other packages as empty, and its errors about them don't matter. It
	// still finds the uses of this package's objects, except those behind another package's type.
	checked := types.Config{Importer: emptyPackages{}, Error: func(error) {}}
	own, _ := checked.Check(name, set, f.files, &types.Info{Uses: f.means})
	fileOf := func(at token.Pos) int { return slices.Index(f.names, set.Position(at).Filename) }
	maps.DeleteFunc(f.means, func(_ *ast.Ident, object types.Object) bool { return object.Pkg() != own })
	for used, object := range f.means {
		f.uses[used], f.declares[object] = fileOf(used.Pos()), fileOf(object.Pos())
	}
	return f, nil
}

type emptyPackages struct{}

func (emptyPackages) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// upward returns the pairs of files in which the lower file uses the higher one, with the names
// that it uses.
func (f *folder) upward(order []string) ([]string, error) {
	height := make([]int, len(f.names))
	for i, name := range f.names {
		if height[i] = slices.Index(order, strings.TrimSuffix(name, ".go")); height[i] < 0 {
			return nil, fmt.Errorf("%s has no place in the order", name)
		}
	}
	for _, name := range order {
		if !slices.Contains(f.names, name+".go") {
			return nil, fmt.Errorf("%s.go is in the order, but not in the folder", name)
		}
	}
	found := map[string]map[string]bool{}
	for used, from := range f.uses {
		if to := f.declares[f.means[used]]; height[to] < height[from] {
			arrow := f.names[from] + " uses " + f.names[to]
			if found[arrow] == nil {
				found[arrow] = map[string]bool{}
			}
			found[arrow][used.Name] = true
		}
	}
	var arrows []string
	for _, arrow := range slices.Sorted(maps.Keys(found)) {
		arrows = append(arrows, arrow+" for "+strings.Join(slices.Sorted(maps.Keys(found[arrow])), ", "))
	}
	return arrows, nil
}

// embedded returns each struct that embeds a pointer to another struct of the package.
func (f *folder) embedded() (found []string) {
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range fields.Fields.List {
				pointer, ok := field.Type.(*ast.StarExpr)
				if !ok || len(field.Names) > 0 {
					continue
				}
				if name, ok := pointer.X.(*ast.Ident); ok {
					found = append(found, spec.Name.Name+" embeds "+name.Name)
				}
			}
			return true
		})
	}
	slices.Sort(found)
	return found
}

// impure returns the uses of clocks, channels, goroutines and stores in these files.
func (f *folder) impure(names []string) (found []string) {
	for _, name := range names {
		name += ".go"
		at := slices.Index(f.names, name)
		if at < 0 {
			found = append(found, name+" is listed, but not in the folder")
			continue
		}
		ast.Inspect(f.files[at], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = append(found, name+" starts a goroutine")
			case *ast.ChanType, *ast.SelectStmt:
				found = append(found, name+" has a channel")
			case *ast.ImportSpec:
				if imported := strings.Trim(n.Path.Value, `"`); slices.Contains(effects, imported) {
					found = append(found, name+" imports "+imported)
				}
			case *ast.SelectorExpr:
				of, ok := n.X.(*ast.Ident)
				if used := n.Sel.Name; used == "store" {
					found = append(found, name+" uses store")
				} else if ok && of.Name == "time" && slices.Contains(clock, used) {
					found = append(found, name+" uses time."+used)
				}
			}
			return true
		})
	}
	return found
}

// effects lists the packages that pure files must not import. clock lists the identifiers of
// package time that pure files must not use.
var (
	effects = strings.Fields("context database/sql net os sync sync/atomic")
	clock   = strings.Fields("After AfterFunc NewTicker NewTimer Now Since Sleep Tick Until")
)
