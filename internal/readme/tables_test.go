package readme

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var update = flag.Bool("update", false, "write the generated tables again")

var generated = regexp.MustCompile(`(?s)(<!-- generated: (\w+); go test ./internal/readme -update -->\n)(.*?)(<!-- end -->)`)

// The tables in these pages agree with the code, the records of tests and the figures of
// benchmarks from which they are generated.
func TestTablesAreFresh(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]map[string]func(testing.TB) string{
		"docs/databases.md":          {"databases": databases},
		"outbox/dialect/POSTGRES.md": {"settings": settings(dialect.Postgres())}, "outbox/dialect/SQLITE.md": {"settings": settings(dialect.SQLite())},
		"outbox/dialect/MYSQL.md": {"settings": settings(dialect.MySQL())},
		"docs/sinks.md":           {"sinks": sinkTable, "brokers": brokers},
		"docs/proof.md":           {"proofs": proofs, "proofcommands": proofCommands},
		"docs/performance.md":     {"comparisons": compared, "goals": goals},
		"docs/debezium.md":        {"debezium": besideDebezium},
		"docs/metrics.md":         {"metrics": metricTable},
		"docs/commands.md":        {"commands": commandTable},
		"bench/FIGURES.md":        {"figures": figures},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkTables(t, read(t, name), tables)
		})
	}
}

func checkTables(t *testing.T, p page, tables map[string]func(testing.TB) string) {
	fresh := generated.ReplaceAllStringFunc(p.text, func(found string) string {
		m := generated.FindStringSubmatch(found)
		makeTable := tables[m[2]]
		if makeTable == nil {
			t.Fatalf("the table %s has no generator", m[2])
		}
		delete(tables, m[2])
		return m[1] + "\n" + makeTable(t) + "\n" + m[4]
	})
	for name := range tables {
		t.Errorf("%s has no table %s", p.name, name)
	}
	if fresh == p.text {
		return
	}
	if !*update {
		t.Errorf("the tables of %s are stale: go test ./internal/readme -update writes them again", p.name)
		return
	}
	check(t, os.WriteFile(filepath.Join(root, p.name), []byte(fresh), 0o644))
}

// sinkTable returns the table of the sinks and official plug-ins whose tests run the conformance suite, with
// links to the tests.
func sinkTable(t testing.TB) string {
	t.Helper()
	var lines strings.Builder
	lines.WriteString("| sink | | its conformance tests |\n| --- | --- | --- |\n")
	builtIn, err := filepath.Glob(filepath.Join(root, "sinks/*"))
	check(t, err)
	official, err := filepath.Glob(filepath.Join(root, "plugins/*/go.mod"))
	check(t, err)
	for i, module := range official {
		official[i] = filepath.Dir(module)
	}
	for _, folder := range append(builtIn, official...) {
		if suites := suitesOf(t, folder); len(suites) > 0 {
			name := filepath.Base(folder)
			page := "../" + filepath.Base(filepath.Dir(folder)) + "/" + name
			if _, err := os.Stat(filepath.Join(folder, "README.md")); err == nil {
				page += "/README.md" // the site has a page of it
			}
			if strings.HasPrefix(page, "../plugins/") {
				name += ", a plug-in"
			}
			fmt.Fprintf(&lines, "| [%s](%s) | %s | %s |\n", name, page, synopsis(t, folder), strings.Join(suites, ", "))
		}
	}
	return lines.String()
}

// suitesOf returns links to those tests of a sink that run the conformance suite,
// directly or through a helper.
func suitesOf(t testing.TB, folder string) (links []string) {
	t.Helper()
	if filepath.Base(folder) == "sinktest" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	check(t, err)
	helpers := map[string]bool{"sinktest.Run": true}
	for range 2 { // the first pass finds the helpers
		links = nil
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			check(t, err)
			for _, declaration := range file.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !callsAny(f, helpers) {
					continue
				}
				if strings.HasPrefix(f.Name.Name, "Test") {
					links = append(links, fmt.Sprintf("[`%s`](../%s/%s/%s)", f.Name.Name, filepath.Base(filepath.Dir(folder)), filepath.Base(folder), filepath.Base(name)))
				} else {
					helpers[f.Name.Name] = true
				}
			}
		}
	}
	return links
}

// callsAny reports whether a function calls one of the named functions.
func callsAny(f *ast.FuncDecl, names map[string]bool) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			calls = calls || names[types.ExprString(call.Fun)]
		}
		return true
	})
	return calls
}

var packageName = regexp.MustCompile(`^(Package \w+ (is a sink that|is a|has)|Rowrelay-plugin-\w+ is a plug-in of rowrelay that) `)

// synopsis returns the first sentence of a package's comment, without the package's or the program's name.
func synopsis(t testing.TB, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	check(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
		check(t, err)
		if file.Doc != nil && !strings.HasSuffix(name, "_test.go") {
			var p doc.Package
			return strings.TrimSuffix(packageName.ReplaceAllString(p.Synopsis(file.Doc.Text()), ""), ".")
		}
	}
	t.Errorf("%s has no package comment", folder)
	return ""
}
