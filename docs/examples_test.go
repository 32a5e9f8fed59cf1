package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exampleLink matches a link to the file of an Example, [ExampleX](../p/x_test.go), and a
// definition of such a link, [ExampleX]: ../p/x_test.go. The name of a package may precede.
var exampleLink = regexp.MustCompile(`\[(?:[a-z]+\.)?(Example\w*)\](?:\(|: )([^)\s]+)`)

// TestExamplesAreLinked shows that a page below docs links each Example function of the module.
// Each link leads to the file that holds the function.
func TestExamplesAreLinked(t *testing.T) {
	type example struct{ file, name string }
	linked := map[example]bool{} // false: no page links it
	walk(t, root, "_test.go", func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example") {
				linked[example{path, f.Name.Name}] = false
			}
		}
	})
	if len(linked) < 100 {
		t.Fatalf("found %d examples", len(linked))
	}
	walk(t, ".", ".md", func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exampleLink.FindAllStringSubmatch(string(text), -1) {
			e := example{filepath.Join(root, "docs", filepath.Dir(path), m[2]), m[1]}
			if _, ok := linked[e]; !ok {
				t.Errorf("%s: %s has no %s", path, m[2], m[1])
			}
			linked[e] = true
		}
	})
	for e, ok := range linked {
		if !ok {
			t.Errorf("no page links %s of %s", e.name, e.file)
		}
	}
}

// walk calls do with the path of each file below dir with the suffix, without test data and hidden
// directories.
func walk(t *testing.T, dir, suffix string, do func(path string)) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, suffix):
			do(path)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
