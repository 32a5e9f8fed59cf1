// Package docs_test checks the Go code of the pages: each block of each page compiles.
package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/internal/raced"
)

// root is the module's directory.
const root = ".."

// block is one fenced block of Go code.
type block struct {
	line int
	code string
}

// page holds the Go code of one Markdown page. The setup declares the names that the blocks use
// and do not declare; it stands in the page as a comment "<!-- go ... -->".
type page struct {
	name   string
	setup  string
	blocks []block
}

// TestSnippets type-checks the Go blocks of all pages.
//
// A block that is a whole file is checked alone. The other blocks of a page form a package: blocks
// with declarations only stand at package level, and each other block becomes the body of a
// function.
func TestSnippets(t *testing.T) {
	module, err := compiledModule()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, p := range pages(t) {
		total += len(p.blocks)
		for _, u := range units(p) {
			check(t, module, p, u)
		}
	}
	if total < 20 {
		t.Errorf("%d blocks of Go; the pages have more", total)
	}
}

// unit is the blocks of a page that form a package together, and the declarations that they see.
type unit struct {
	blocks []block
	setup  string
}

// whole reports whether u is one whole file.
func (u unit) whole() bool {
	return len(u.blocks) == 1 && isFile(u.blocks[0].code)
}

// units divides the blocks of a page. The blocks without a package clause form one unit.
func units(p page) []unit {
	var us []unit
	parts := unit{setup: p.setup}
	for _, b := range p.blocks {
		if isFile(b.code) {
			us = append(us, unit{blocks: []block{b}})
		} else {
			parts.blocks = append(parts.blocks, b)
		}
	}
	if len(parts.blocks) > 0 {
		us = append(us, parts)
	}
	return us
}

// isFile reports whether code is a whole file.
func isFile(code string) bool { return strings.HasPrefix(code, "package ") }

// isDeclarations reports whether code can stand at package level.
func isDeclarations(code string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, parser.SkipObjectResolution)
	return err == nil
}

// pages reads all Markdown pages of the tree that have Go code.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		p, err := readPage(rel, string(text))
		if len(p.blocks) > 0 {
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readPage finds the blocks and the setup of a page. Returns an error if one of them has no end.
func readPage(name, text string) (page, error) {
	p := page{name: name}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		var into *string
		var end string
		switch lines[i] {
		case "```go":
			p.blocks = append(p.blocks, block{line: i + 2})
			into, end = &p.blocks[len(p.blocks)-1].code, "```"
		case "<!-- go":
			into, end = &p.setup, "-->"
		default:
			continue
		}
		for i++; i < len(lines) && lines[i] != end; i++ {
			*into += lines[i] + "\n"
		}
		if i == len(lines) {
			return p, fmt.Errorf("%s: no line %q ends the code", name, end)
		}
	}
	return p, nil
}

// file is the Go file that a block or the setup of a page becomes.
type file struct{ name, code string }

// files returns the files of a unit.
func files(exports map[string]string, p page, u unit) []file {
	var fs []file
	for _, b := range u.blocks {
		// The line directive makes errors name the page.
		code := fmt.Sprintf("//line %s:%d\n%s", filepath.Base(p.name), b.line, b.code)
		switch {
		case u.whole():
		case isDeclarations(b.code):
			code = header(exports, b.code) + code
		default:
			// after "if true" the last line is reachable, whatever the block returns
			body := "func _() error {\nif true {\n" + code + "\n}\nreturn nil\n}\n"
			code = header(exports, body) + body
		}
		fs = append(fs, file{fmt.Sprintf("%s_%d.go", pathName(p.name), b.line), code})
	}
	if u.setup != "" {
		fs = append(fs, file{pathName(p.name) + "_setup.go", header(exports, u.setup) + u.setup})
	}
	return fs
}

// pathName returns name as a part of the name of a file.
func pathName(name string) string { return strings.NewReplacer("/", "_", ".", "_").Replace(name) }

// check type-checks the files of a unit as one package.
func check(t *testing.T, module *compiled, p page, u unit) {
	t.Helper()
	typeCheck(t, module, files(module.exports, p, u), func(err types.Error) bool {
		// a block shows a part of a function
		return !u.whole() && strings.Contains(err.Msg, "declared and not used")
	})
}

// typeCheck type-checks files as one package and reports the errors that ignore does not accept.
func typeCheck(t *testing.T, module *compiled, fs []file, ignore func(types.Error) bool) {
	t.Helper()
	var parsed []*ast.File
	for _, f := range fs {
		tree, err := parser.ParseFile(module.set, f.name, f.code, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		parsed = append(parsed, tree)
	}
	conf := types.Config{
		Importer: module.importer,
		Error: func(err error) {
			if terr, ok := errors.AsType[types.Error](err); !ok || !ignore(terr) {
				t.Error(err)
			}
		},
	}
	_, _ = conf.Check("page", module.set, parsed, nil) // Error has had each error
}

// header returns the package clause and the imports that code needs: packages of this module and of
// the standard library by their names.
func header(exports map[string]string, code string) string {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", "package p\n"+code, 0)
	if err != nil {
		return "package p\n"
	}
	needed := map[string]bool{}
	for _, id := range f.Unresolved {
		needed[id.Name] = true
	}
	var b strings.Builder
	b.WriteString("package p\n")
	for path := range exports {
		name := strings.TrimPrefix(path[strings.LastIndex(path, "/")+1:], "go-")
		if needed[name] && !strings.Contains(path, "internal") && preferred(path, name) {
			b.WriteString("import " + strconv.Quote(path) + "\n")
		}
	}
	return b.String()
}

// preferred decides between packages of one name: those of this module go first, then the shortest
// path of the standard library. The drivers of package open are imported for their effect only, and
// the packages below celery by celery only.
func preferred(path, name string) bool {
	if strings.HasPrefix(path, "github.com/swarmiji/swarmiji/open/") || strings.HasPrefix(path, "github.com/swarmiji/swarmiji/celery/") {
		return false
	}
	if strings.HasPrefix(path, "github.com/swarmiji/") {
		return true
	}
	std := map[string]string{"http": "net/http", "slog": "log/slog", "rand": "math/rand/v2", "sql": "database/sql", "signal": "os/signal", "template": "text/template", "json": "encoding/json", "filepath": "path/filepath", "synctest": "testing/synctest"}
	if p, ok := std[name]; ok {
		return p == path
	}
	if path == name {
		return true
	}
	others := map[string]string{"metrics": "github.com/rcrowley/go-metrics", "pgxpool": "github.com/jackc/pgx/v5/pgxpool"}
	return others[name] == path
}

// compiled is this module and all its dependencies, compiled. Its importer reads a package once
// for all tests, which must not run in parallel.
type compiled struct {
	exports  map[string]string // the file of each package
	set      *token.FileSet
	importer types.Importer
}

// compiledModule compiles the module.
var compiledModule = sync.OnceValues(func() (*compiled, error) {
	exports, err := exportData()
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	from := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("package %s is not in this module or its dependencies", path)
		}
		return os.Open(file)
	})
	return &compiled{exports, set, from}, nil
})

// exportData returns the files of compiled packages. It leaves out programs, which no page imports:
// the go command would compile them for it alone, because a program depends on the flags of the
// linker too.
func exportData() (map[string]string, error) {
	libraries, err := goList("-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	args := append([]string{"-export", "-deps", "-json=ImportPath,Export"}, raced.Flags()...)
	out, err := goList(append(args, strings.Fields(string(libraries))...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return exports, nil
		case err != nil:
			return nil, err
		}
		if p.Export != "" {
			exports[p.ImportPath] = p.Export
		}
	}
}

// goList returns the output of go list with these arguments, run at the root of the module.
func goList(args ...string) ([]byte, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	return out, nil
}
