package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// source is a package as it is written.
type source struct {
	rel   string // path below the module
	name  string
	fset  *token.FileSet
	files []*ast.File // without tests
	tests []*ast.File
}

// parse reads the sources of p.
func parse(p pkg) (*source, error) {
	rel, _ := relative(p.ImportPath)
	s := &source{rel: rel, name: p.Name, fset: token.NewFileSet()}
	read := func(names []string) ([]*ast.File, error) {
		var files []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(s.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		return files, nil
	}
	var err, testErr error
	s.files, err = read(p.GoFiles)
	s.tests, testErr = read(append(p.TestGoFiles, p.XTestGoFiles...))
	return s, errors.Join(err, testErr)
}

// at returns where n stands, for a person to go to.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s/%s:%d", s.rel, filepath.Base(p.Filename), p.Line)
}

// checkLength finds files outside of tests that are too long.
func (s *source) checkLength() []string {
	var bad []string
	for _, f := range s.files {
		if n := s.fset.File(f.FileStart).LineCount(); n > maxLines {
			bad = append(bad, fmt.Sprintf("%s: %d lines; a file with one subject has at most %d: split it", s.at(f), n, maxLines))
		}
	}
	return bad
}

// checkInit finds init functions, in tests too.
func (s *source) checkInit() []string {
	var bad []string
	for _, f := range append(s.files, s.tests...) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				bad = append(bad, s.at(fn)+": init function: importing a package does nothing; let the caller call it")
			}
		}
	}
	return bad
}

// resolve tells for each identifier outside of tests what it stands for. Nothing outside of the package is loaded: what
// comes from elsewhere stays unknown, which is enough to follow the package's own variables through its own scopes.
func (s *source) resolve() *types.Info {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{
		Importer: noImports{},
		Error:    func(error) {}, // missing imports; the compiler tells the other errors better
	}
	_, _ = conf.Check(s.rel, s.fset, s.files, info) // its error is the first of those
	return info
}

type noImports struct{}

// Import implements types.Importer. An empty package lets the checker go on.
func (noImports) Import(path string) (*types.Package, error) {
	name := path[strings.LastIndex(path, "/")+1:]
	p := types.NewPackage(path, name)
	p.MarkComplete()
	return p, nil
}
