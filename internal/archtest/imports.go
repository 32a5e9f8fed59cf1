package archtest

import (
	"fmt"
	"slices"
)

// pkg holds the data of a package that the import rules need, with the field names of "go list
// -json".
type pkg struct {
	Dir          string
	ImportPath   string
	Name         string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string // all packages that it links, directly or indirectly
	TestImports  []string
	XTestImports []string
}

// checkImports returns a sentence for each import of p that breaks a rule.
func checkImports(p pkg) []string {
	rel, ok := relative(p.ImportPath)
	if !ok {
		return []string{p.ImportPath + ": lies outside of module " + module}
	}
	r, ok := ruleOf(rel)
	if !ok {
		return []string{rel + ": no rule knows this package; give it a row in internal/archtest/rules.go and in DESIGN.md"}
	}
	var bad []string
	for _, path := range p.Imports {
		if s := checkImport(rel, r, path); s != "" {
			bad = append(bad, s)
		}
	}
	tests := slices.Concat(p.TestImports, p.XTestImports)
	slices.Sort(tests)
	for _, path := range slices.Compact(tests) {
		if s := checkTestImport(rel, path); s != "" {
			bad = append(bad, s)
		}
	}
	return append(bad, checkReach(rel, p)...)
}

func checkImport(rel string, r rule, path string) string {
	target, inside := relative(path)
	switch {
	case inside && matches(sets["suites"], target):
		return fmt.Sprintf("%s imports the suite %s: suites are for _test.go files only", rel, target)
	case inside:
		if !matches(r.may, target) {
			return fmt.Sprintf("%s (%s) imports %s: it may import %v, because %s", rel, r.layer, target, r.may, r.why)
		}
	case standard(path):
		if (path == "testing" || path == "testing/synctest") && !matches(testingOnly, rel) {
			return fmt.Sprintf("%s imports %s: no program may link it; only %v and _test.go files may", rel, path, testingOnly)
		}
	default:
		return checkClient(rel, path, false)
	}
	return ""
}

// checkTestImport returns a sentence if a test must not import path. Tests may import every package
// of the module that is made for use, in any layer.
func checkTestImport(rel, path string) string {
	target, inside := relative(path)
	switch {
	case inside:
		if matches(sets["programs"], target) && !matches(sets["programs"], rel) {
			return fmt.Sprintf("the tests of %s import %s: a program is not for import", rel, target)
		}
	case !standard(path):
		return checkClient(rel, path, true)
	}
	return ""
}

func checkClient(rel, path string, test bool) string {
	c, ok := clientOf(path)
	switch {
	case !ok:
		return fmt.Sprintf("%s imports %s: no row of clients knows this module; see DESIGN.md on dependencies", rel, path)
	case matches(c.may, rel), test && c.tests:
		return ""
	}
	return fmt.Sprintf("%s imports %s: only %v may, because %s", rel, path, c.may, c.why)
}

// checkReach returns a sentence for each client that p must not link. Import rules check direct
// imports only; a client can also be linked indirectly.
func checkReach(rel string, p pkg) []string {
	var bad []string
	seen := map[string]bool{}
	for _, path := range p.Deps {
		if _, inside := relative(path); inside || standard(path) {
			continue
		}
		c, ok := clientOf(path)
		if !ok || seen[c.path] {
			continue // the client is responsible for its own dependencies
		}
		seen[c.path] = true
		if !matches(c.may, rel) && !matches(c.reach, rel) {
			bad = append(bad, fmt.Sprintf("%s links %s through what it imports: only %v and %v may, because %s", rel, c.path, c.may, c.reach, c.why))
		}
	}
	return bad
}
