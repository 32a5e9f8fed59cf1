package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"strconv"
	"strings"
)

// checkExposed returns a sentence for each type of an internal package in the module's exported
// interface: exported functions, methods, and types with their exported fields and methods. A user
// could not name such a type or read its documentation.
func (s *source) checkExposed() []string {
	if s.name == "main" || strings.Contains("/"+s.rel+"/", "/internal/") {
		return nil
	}
	var bad []string
	for _, f := range s.files {
		inside := internalNames(f)
		look := func(name *ast.Ident, x ast.Node) {
			if !name.IsExported() || x == nil {
				return
			}
			inspectSeen(x, func(e *ast.SelectorExpr) {
				if id, ok := e.X.(*ast.Ident); ok && inside[id.Name] {
					bad = append(bad, fmt.Sprintf("%s: exported %s shows %s.%s, which users cannot name: use a type of a public package", s.at(e), name.Name, id.Name, e.Sel.Name))
				}
			})
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if exportedReceiver(d) {
					look(d.Name, d.Type)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						look(spec.Name, spec)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							look(name, spec.Type)
						}
					}
				}
			}
		}
	}
	return bad
}

// internalNames returns the names under which f imports internal packages.
func internalNames(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !strings.HasPrefix(p, module+"/") || !strings.Contains(p, "/internal/") {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = true
	}
	return names
}

// inspectSeen calls fn for each qualified name in x, except in fields and methods that users cannot
// see.
func inspectSeen(x ast.Node, fn func(*ast.SelectorExpr)) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			fn(n)
		case *ast.StructType:
			inspectFields(n.Fields, fn)
			return false
		case *ast.InterfaceType:
			inspectFields(n.Methods, fn)
			return false
		}
		return true
	})
}

func inspectFields(list *ast.FieldList, fn func(*ast.SelectorExpr)) {
	for _, field := range list.List {
		seen := len(field.Names) == 0 // an embedded field
		for _, name := range field.Names {
			seen = seen || name.IsExported()
		}
		if seen {
			inspectSeen(field.Type, fn)
		}
	}
}
