package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// checkDocs returns a sentence for each missing package comment and for each exported name without
// a doc comment.
func (s *source) checkDocs() []string {
	var bad []string
	if len(s.files) == 0 {
		return nil // the package has only tests
	}
	described := false
	for _, f := range s.files {
		described = described || hasText(f.Doc)
	}
	if !described {
		bad = append(bad, fmt.Sprintf("%s: no package comment; say in one sentence what package %s is for", s.rel, s.name))
	}
	if s.name == "main" {
		return bad // other packages cannot import a program
	}
	for _, f := range s.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && !hasText(d.Doc) {
					bad = append(bad, s.undocumented(d, d.Name.Name))
				}
			case *ast.GenDecl:
				bad = append(bad, s.checkDeclDocs(d)...)
			}
		}
	}
	return bad
}

// checkDeclDocs checks one declaration. A comment above a group of constants or variables covers
// all of them. Each type needs its own comment.
func (s *source) checkDeclDocs(d *ast.GenDecl) []string {
	var bad []string
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			alone := !d.Lparen.IsValid() && hasText(d.Doc)
			if spec.Name.IsExported() && !hasText(spec.Doc) && !alone {
				bad = append(bad, s.undocumented(spec, spec.Name.Name))
			}
		case *ast.ValueSpec:
			if hasText(spec.Doc) || hasText(spec.Comment) || hasText(d.Doc) {
				continue
			}
			for _, name := range spec.Names {
				if name.IsExported() {
					bad = append(bad, s.undocumented(name, name.Name))
				}
			}
		}
	}
	return bad
}

func (s *source) undocumented(n ast.Node, name string) string {
	return fmt.Sprintf("%s: exported %s has no doc comment", s.at(n), name)
}

// hasText reports whether a comment has text other than directives such as go:embed.
func hasText(c *ast.CommentGroup) bool { return strings.TrimSpace(c.Text()) != "" }

// exportedReceiver reports whether fn is a function or a method of an exported type. Other methods
// are not visible to users.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.ParenExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return token.IsExported(x.Name)
		default:
			return true
		}
	}
}
