package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// constructors lists functions whose result does not change, so that a package variable may hold
// it.
var constructors = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "template.Must", "strings.NewReplacer", "sync.OnceValues", "task.New",
}

// checkVars returns a sentence for each package variable that can change. It permits:
//
//   - interface checks: var _ Port = (*Adapter)(nil)
//   - errors, also those of other packages, and other results of the constructors above
//   - embedded files
//   - sync.Pool, whose contents have no visible effect
//   - unexported tables (composite literals), functions and plain values that no code of the
//     package writes to
//   - variables named in the table of shared variables
func (s *source) checkVars() []string {
	var bad []string
	info := s.resolve()
	fixed := map[types.Object]bool{}
	for _, f := range s.files {
		for _, v := range variables(f) {
			for i, name := range v.Names {
				switch kind := valueKind(v, i, info.Defs[name]); {
				case name.Name == "_", shared[s.rel+"."+name.Name] != "":
				case kind == constructed, kind == table && !name.IsExported():
					fixed[info.Defs[name]] = true
				case kind == pool && !name.IsExported():
				default:
					bad = append(bad, fmt.Sprintf("%s: package variable %s can change: make it a constant, an unexported table, or a field of what uses it", s.at(name), name.Name))
				}
			}
		}
	}
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			for _, target := range written(n) {
				if id := root(target); id != nil && fixed[info.Uses[id]] {
					bad = append(bad, fmt.Sprintf("%s: package variable %s is written to: keep what changes in a value that somebody owns", s.at(id), id.Name))
				}
			}
			return true
		})
	}
	return bad
}

// variables returns the declarations of f's package variables, without embedded files.
func variables(f *ast.File) []*ast.ValueSpec {
	var found []*ast.ValueSpec
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && !embedded(g, v) {
				found = append(found, v)
			}
		}
	}
	return found
}

func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
			return strings.HasPrefix(c.Text, "//go:embed ")
		}) {
			return true
		}
	}
	return false
}

// kind classifies the value that a variable is set to.
type kind int

const (
	other kind = iota
	constructed
	pool
	table
)

// valueKind returns the kind of the value of o, the i-th variable of v.
func valueKind(v *ast.ValueSpec, i int, o types.Object) kind {
	if i >= len(v.Values) {
		return other // without a value, it will be set later
	}
	if o != nil {
		switch t := o.Type().Underlying().(type) {
		case *types.Signature:
			return table
		case *types.Basic:
			if t.Kind() != types.Invalid {
				return table
			}
		}
	}
	switch x := ast.Unparen(v.Values[i]).(type) {
	case *ast.CompositeLit:
		name := types.ExprString(x.Type)
		switch {
		case name == "sync.Pool":
			return pool
		case strings.HasPrefix(name, "sync."), strings.HasPrefix(name, "atomic."):
			return other // types made to be changed
		}
		return table
	case *ast.SelectorExpr: // another package's error
		if strings.HasPrefix(x.Sel.Name, "Err") {
			return constructed
		}
	case *ast.CallExpr:
		fun := x.Fun
		switch generic := fun.(type) { // generic functions such as task.New[A, R]
		case *ast.IndexExpr:
			fun = generic.X
		case *ast.IndexListExpr:
			fun = generic.X
		}
		if slices.Contains(constructors, types.ExprString(fun)) {
			return constructed
		}
		if a, ok := fun.(*ast.ArrayType); ok && a.Len == nil { // a conversion such as []byte("text")
			return table
		}
	}
	return other
}

// written returns the expressions that a node changes, or through which other code could change
// them.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
			return n.Args[:1]
		}
	}
	return nil
}

// root returns the variable of x, x[i], x.f, x[a:b], *x and similar expressions. It returns nil if
// x has no variable.
func root(x ast.Expr) *ast.Ident {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			return e
		case *ast.IndexExpr:
			x = e.X
		case *ast.SelectorExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		default:
			return nil
		}
	}
}
