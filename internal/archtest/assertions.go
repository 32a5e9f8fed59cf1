package archtest

import (
	"fmt"
	"go/ast"
)

// interfaces returns the exported interfaces of s by their qualified names, such as
// "events.Retainer".
func (s *source) interfaces() []string {
	var names []string
	for _, f := range s.files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok || !t.Name.IsExported() {
					continue
				}
				if _, ok := t.Type.(*ast.InterfaceType); ok {
					names = append(names, s.name+"."+t.Name.Name)
				}
			}
		}
	}
	return names
}

// checkAssertions returns a sentence for each type assertion or case of a type switch, outside of
// tests, that looks for one of these interfaces. Such code does not look behind wrappers.
func (s *source) checkAssertions(capabilities map[string]bool) []string {
	var bad []string
	look := func(x ast.Expr) {
		if name := s.nameOf(x); capabilities[name] {
			bad = append(bad, fmt.Sprintf("%s: type assertion to %s: capability.As[%s] finds it behind wrappers too", s.at(x), name, name))
		}
	}
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				if n.Type != nil { // otherwise it is a type switch
					look(n.Type)
				}
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					if c, ok := clause.(*ast.CaseClause); ok {
						for _, x := range c.List {
							look(x)
						}
					}
				}
			}
			return true
		})
	}
	return bad
}

// nameOf returns a type's name with its package, or "" for a type without a name.
func (s *source) nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return s.name + "." + x.Name
	case *ast.SelectorExpr:
		if p, ok := x.X.(*ast.Ident); ok {
			return p.Name + "." + x.Sel.Name
		}
	}
	return ""
}
