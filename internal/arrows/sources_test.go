package arrows

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Imports returns every import of every file in the tree that is not a test, with any build tag. It
// skips the modules of tests and benchmarks.
func Imports(tree fs.FS) ([]Import, error) {
	var imports []Import
	err := eachSource(tree, func(name string, source []byte) error {
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("parse the imports: %w", err)
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			imports = append(imports, Import{File: name, Path: imported})
		}
		return nil
	})
	return imports, err
}

// Goroutines returns the positions in a folder's non-test files where a goroutine starts, by a go
// statement or by a method Go. Its last argument names a file that it skips, because that file
// may start goroutines.
func Goroutines(tree fs.FS, folder, except string) ([]string, error) {
	var places []string
	err := eachSource(tree, func(name string, source []byte) error {
		if path.Dir(name) != folder || path.Base(name) == except {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if startsGoroutine(n) {
				places = append(places, files.Position(n.Pos()).String())
			}
			return true
		})
		return nil
	})
	return places, err
}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		method, ok := n.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Go"
	}
	return false
}

func eachSource(tree fs.FS, visit func(name string, source []byte) error) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && passedOver(tree, name):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return fmt.Errorf("read a source: %w", err)
		}
		return visit(name, source)
	})
}

// passedOver reports whether a folder is skipped, because it is hidden, has test data, or is another
// module. The module outbox isn't skipped, because it is released together with this one.
func passedOver(tree fs.FS, folder string) bool {
	base := path.Base(folder)
	if folder == "." || folder == "outbox" {
		return false
	}
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return true
	}
	_, err := fs.Stat(tree, folder+"/go.mod")
	return err == nil
}
