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

// source is the parsed source code of a package.
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

// at returns the file and line of n, for failure messages.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s/%s:%d", s.rel, filepath.Base(p.Filename), p.Line)
}

// checkLength returns a sentence for each file outside of tests that is too long.
func (s *source) checkLength() []string {
	var bad []string
	for _, f := range s.files {
		if n := s.fset.File(f.FileStart).LineCount(); n > maxLines {
			bad = append(bad, fmt.Sprintf("%s: %d lines; a file with one subject has at most %d: split it", s.at(f), n, maxLines))
		}
	}
	return bad
}

// checkSize returns a sentence for a package that has too many lines outside of tests. Suites may
// have any number.
func (s *source) checkSize() []string {
	n := 0
	for _, f := range s.files {
		n += s.fset.File(f.FileStart).LineCount()
	}
	if n <= maxPackageLines || matches([]string{"@suites"}, s.rel) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines; a package has at most %d: move a subject to a package of its own", s.rel, n, maxPackageLines)}
}

// checkInit returns a sentence for each init function, in tests too. A driver of package open may
// have one that only registers the driver.
func (s *source) checkInit() []string {
	var bad []string
	for _, f := range append(s.files, s.tests...) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv == nil && fn.Name.Name == "init" && (!matches(initializers, s.rel) || !registers(fn)) {
				bad = append(bad, s.at(fn)+": init function: importing a package does nothing; let the caller call it")
			}
		}
	}
	return bad
}

// registers reports whether fn calls open.Register once and does nothing else.
func registers(fn *ast.FuncDecl) bool {
	if len(fn.Body.List) != 1 {
		return false
	}
	e, ok := fn.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := e.X.(*ast.CallExpr)
	return ok && types.ExprString(call.Fun) == "open.Register"
}

// resolve returns the object of each identifier outside of tests. It does not load other packages:
// their objects stay unknown. That is enough to follow the package's own variables through its
// scopes.
func (s *source) resolve() *types.Info {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{
		Importer: noImports{},
		Error:    func(error) {}, // missing imports; the compiler reports other errors better
	}
	_, _ = conf.Check(s.rel, s.fset, s.files, info) // its error is the first of the ignored ones
	return info
}

type noImports struct{}

// Import implements types.Importer. It returns an empty package, so that the type checker can
// continue.
func (noImports) Import(path string) (*types.Package, error) {
	name := path[strings.LastIndex(path, "/")+1:]
	p := types.NewPackage(path, name)
	p.MarkComplete()
	return p, nil
}
