package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// tables holds the tables of rules.go, or other tables in tests.
type tables struct {
	sets    map[string][]string
	layers  []rule
	clients []client
	testing []string
}

// checkTables returns a sentence for each row, pattern and permission that no package needs.
func (t tables) checkTables(pkgs []pkg) []string {
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	exists := func(pattern string) bool {
		return slices.ContainsFunc(pkgs, func(p pkg) bool { return matches([]string{pattern}, rel(p)) })
	}
	for name, patterns := range t.sets {
		for _, pattern := range patterns {
			if !exists(pattern) {
				complain("set %q names %s: there is no such package", name, pattern)
			}
		}
	}
	for i, r := range t.layers {
		members := slices.DeleteFunc(slices.Clone(pkgs), func(p pkg) bool {
			return slices.IndexFunc(t.layers, func(r rule) bool { return matches(r.pkgs, rel(p)) }) != i
		})
		for _, pattern := range r.pkgs {
			if !slices.ContainsFunc(members, func(p pkg) bool { return matches([]string{pattern}, rel(p)) }) {
				complain("the row of %v names %s: there is no such package, or an earlier row has it", r.pkgs, pattern)
			}
		}
		for _, pattern := range r.may {
			if !slices.ContainsFunc(members, func(p pkg) bool { return imports(p.Imports, pattern) }) {
				complain("the row of %v permits %s, which nothing in it imports", r.pkgs, pattern)
			}
		}
	}
	for _, c := range t.clients {
		bad = append(bad, c.unused(pkgs)...)
	}
	for _, pattern := range t.testing {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool {
			return matches([]string{pattern}, rel(p)) && (slices.Contains(p.Imports, "testing") || slices.Contains(p.Imports, "testing/synctest"))
		}) {
			complain("testingOnly names %s, which does not import testing", pattern)
		}
	}
	return bad
}

// unused returns a sentence for each permission of c that no package needs.
func (c client) unused(pkgs []pkg) []string {
	var bad []string
	of := func(paths []string) bool {
		return slices.ContainsFunc(paths, func(path string) bool { return path == c.path || strings.HasPrefix(path, c.path+"/") })
	}
	tests := func(p pkg) bool { return of(p.TestImports) || of(p.XTestImports) }
	for _, pattern := range c.may {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool { return matches([]string{pattern}, rel(p)) && (of(p.Imports) || tests(p)) }) {
			bad = append(bad, fmt.Sprintf("the row of %s permits %s, which does not import it", c.path, pattern))
		}
	}
	for _, pattern := range c.reach {
		if !slices.ContainsFunc(pkgs, func(p pkg) bool {
			return matches([]string{pattern}, rel(p)) && !matches(c.may, rel(p)) && of(p.Deps)
		}) {
			bad = append(bad, fmt.Sprintf("the row of %s lets it reach %s, which does not link it", c.path, pattern))
		}
	}
	if c.tests && !slices.ContainsFunc(pkgs, func(p pkg) bool { return !matches(c.may, rel(p)) && tests(p) }) {
		bad = append(bad, fmt.Sprintf("the row of %s opens it to all tests, and none needs that", c.path))
	}
	return bad
}

// checkShared returns a sentence for each variable of s that the table of shared variables names
// and that does not exist.
func (s *source) checkShared(names map[string]string) []string {
	var bad []string
	for name := range names {
		variable, ok := strings.CutPrefix(name, s.rel+".")
		if !ok || slices.ContainsFunc(s.files, func(f *ast.File) bool { return declares(f, variable) }) {
			continue
		}
		bad = append(bad, fmt.Sprintf("the table of shared variables names %s, which is not there", name))
	}
	return bad
}

// declares reports whether f has a package variable of this name.
func declares(f *ast.File, name string) bool {
	for _, v := range variables(f) {
		for _, id := range v.Names {
			if id.Name == name {
				return true
			}
		}
	}
	return false
}

// imports reports whether one of the paths is in this module and matches the pattern.
func imports(paths []string, pattern string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		target, inside := relative(path)
		return inside && matches([]string{pattern}, target)
	})
}

// rel returns p's path below the module.
func rel(p pkg) string {
	path, _ := relative(p.ImportPath)
	return path
}
