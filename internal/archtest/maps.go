package archtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Documents show the tree of the packages: doc.go for users, DESIGN.md for developers of the
// library. A list that names a missing package, or omits an existing one, misleads its readers.

// compare returns a sentence for each name in a document that is not permitted, and for each
// required name that is missing.
func compare(document string, named, may, must []string) []string {
	var bad []string
	for _, name := range named {
		if !slices.Contains(may, name) {
			bad = append(bad, fmt.Sprintf("%s names %s, which is no package", document, name))
		}
	}
	for _, name := range must {
		if !slices.Contains(named, name) {
			bad = append(bad, fmt.Sprintf("%s does not name the package %s", document, name))
		}
	}
	return bad
}

// docItem matches an item of the list in doc.go: names and their purpose.
var docItem = regexp.MustCompile(`(?m)^//   - ([a-z, ]+): `)

// namedInDoc returns the packages named by the list in doc.go.
func namedInDoc(text string) []string {
	var names []string
	for _, item := range docItem.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Split(item[1], ", ")...)
	}
	return names
}

// forUsers returns the packages directly below the module that users import.
func forUsers(pkgs []pkg) []string {
	var names []string
	for _, p := range pkgs {
		testsOnly := len(p.GoFiles) == 0 && len(p.XTestGoFiles) > 0
		if name := rel(p); name != "." && p.Name != "main" && !testsOnly && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

var (
	designDir = regexp.MustCompile(`^([a-z/]+)/(?: |$)`) // at the start of a line
	// in the indented lines below
	designSub = regexp.MustCompile(`(?:^| )([a-z0-9/]+)/`)
	// a remark about a package in parentheses
	aside      = regexp.MustCompile(`\([^)]*\)?`)
	designCode = regexp.MustCompile("`([a-z/*]+|internal/\\{[a-z,]+\\})`") // in the table of layers
)

// namedInDesign returns the packages and directories named by the map in DESIGN.md, the block that
// begins with doc.go.
func namedInDesign(text string) []string {
	_, block, _ := strings.Cut(text, "```\ndoc.go ")
	block, _, _ = strings.Cut(block, "```")
	var names []string
	dir := ""
	for line := range strings.Lines(block) {
		if m := designDir.FindStringSubmatch(line); m != nil {
			dir = m[1]
			names = append(names, dir)
			continue
		}
		for _, m := range designSub.FindAllStringSubmatch(aside.ReplaceAllString(line, ""), -1) {
			names = append(names, dir+"/"+m[1])
		}
	}
	return names
}

// paths returns the paths of the packages below the module.
func paths(pkgs []pkg) []string {
	var names []string
	for _, p := range pkgs {
		if name := rel(p); name != "." {
			names = append(names, name)
		}
	}
	return names
}

// parents returns the packages and the directories above them, which a map may name as well.
func parents(pkgs []pkg) []string {
	all := map[string]bool{}
	for _, p := range pkgs {
		for dir := rel(p); dir != "."; {
			all[dir] = true
			i := strings.LastIndex(dir, "/")
			if i < 0 {
				break
			}
			dir = dir[:i]
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// checkLayerTable returns a sentence for each package whose layer in DESIGN.md differs from its
// layer in rules.go.
func checkLayerTable(text string, pkgs []pkg) []string {
	var bad []string
	_, table, _ := strings.Cut(text, "\n| layer | packages | may import |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "-") {
			continue
		}
		rows++
		layer := strings.TrimSuffix(strings.TrimSpace(cells[1]), "s") // for the layer of tests
		for _, name := range spans(cells[2]) {
			found := false
			for _, p := range pkgs {
				if !matches([]string{name, name + "/..."}, rel(p)) {
					continue
				}
				found = true
				r, _ := ruleOf(rel(p))
				if rel(p) == name && r.layer != layer && (layer != "test" || r.layer != "suite") {
					bad = append(bad, fmt.Sprintf("DESIGN.md puts %s into %s, rules.go into %s", name, layer, r.layer))
				}
			}
			if !found {
				bad = append(bad, fmt.Sprintf("the table of layers in DESIGN.md names %s, which is no package", name))
			}
		}
	}
	if rows < 10 {
		bad = append(bad, "DESIGN.md has no table of layers that this test can read")
	}
	return bad
}

// spans returns the names in a cell. It expands names in braces.
func spans(cell string) []string {
	var names []string
	for _, m := range designCode.FindAllStringSubmatch(aside.ReplaceAllString(cell, ""), -1) {
		before, list, braced := strings.Cut(strings.TrimSuffix(m[1], "}"), "{")
		if !braced {
			names = append(names, before)
			continue
		}
		for _, name := range strings.Split(list, ",") {
			names = append(names, before+name)
		}
	}
	return names
}

var (
	lintPackage = regexp.MustCompile(regexp.QuoteMeta(module) + `/([a-z/]*[a-z])`)
	lintFiles   = regexp.MustCompile(`"!?\*\*/([a-z/]+)/[^"]*\.go"`)
)

// checkLint returns a sentence for each package that .golangci.yml names and that does not exist.
func checkLint(text string, there []string) []string {
	var bad []string
	for _, m := range slices.Concat(lintPackage.FindAllStringSubmatch(text, -1), lintFiles.FindAllStringSubmatch(text, -1)) {
		if !slices.Contains(there, m[1]) {
			bad = append(bad, fmt.Sprintf(".golangci.yml names %s, which is no package", m[1]))
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}
