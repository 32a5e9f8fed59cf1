package docs_test

import (
	"errors"
	"go/format"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFormat shows that the Go blocks of the pages have the form of gofmt.
func TestFormat(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			formatted, err := format.Source([]byte(b.code))
			if err != nil {
				t.Errorf("%s:%d: %v", p.name, b.line, err)
			} else if string(formatted) != b.code {
				t.Errorf("%s:%d: gofmt writes this block so:\n%s", p.name, b.line, formatted)
			}
		}
	}
}

var (
	// quoted matches the text between two backticks, or a comment of a Go block.
	quoted = regexp.MustCompile("`[^`\n]+`|//.*")
	// named matches pkg.Name, pkg.Type.Member and Type.Member.
	named = regexp.MustCompile(`(?:^|[^\w./@-])((?:[a-z][a-z0-9]*\.)?[A-Z]\w*(?:\.[A-Z]\w*)?)\b`)
)

// errorNames holds names of errors in retry policies, which look like Go names.
var errorNames = map[string]bool{"swarmiji.TimeLimit": true, "swarmiji.BadArgs": true}

// TestNames shows that each quoted name of a package of this module exists: pkg.Name,
// pkg.Type.Member and Type.Member. The first column of the pages for users of another library has
// the names of that library.
func TestNames(t *testing.T) {
	own, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range allPages(t) {
		fenced, goBlock := false, false
		for i, line := range strings.Split(p.text, "\n") {
			if strings.HasPrefix(line, "```") {
				fenced, goBlock = !fenced, line == "```go"
				continue
			}
			if fenced && !goBlock {
				continue
			}
			if strings.Contains(p.name, "from-") && strings.HasPrefix(line, "|") {
				_, line, _ = strings.Cut(line[1:], "|")
			}
			for _, q := range quoted.FindAllString(line, -1) {
				if strings.HasPrefix(q, "//") != fenced {
					continue
				}
				for _, m := range named.FindAllStringSubmatch(q[1:], -1) {
					switch known, ok := own.has(m[1]); {
					case !known || errorNames[m[1]] || p.declares(m[1]):
					case ok:
						found++
					default:
						t.Errorf("%s:%d: there is no %s", p.name, i+1, m[1])
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names found; the pages have more", found)
	}
}

// scopes holds the packages of this module by their names.
type scopes map[string][]*types.Package

// packages reads the packages of this module.
func packages() (scopes, error) {
	module, err := compiledModule()
	if err != nil {
		return nil, err
	}
	own := scopes{}
	var errs []error
	for path := range module.exports {
		if !strings.HasPrefix(path, "github.com/swarmiji/swarmiji") {
			continue
		}
		p, err := module.importer.Import(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		own[p.Name()] = append(own[p.Name()], p)
	}
	return own, errors.Join(errs...)
}

// has reports whether a package of the module declares name. known is false if name cannot belong
// to this module: its package is another one, or it is a single word.
func (s scopes) has(name string) (known, ok bool) {
	parts := strings.Split(name, ".")
	candidates := s[parts[0]]
	if first := parts[0][0]; first >= 'A' && first <= 'Z' {
		if len(parts) == 1 {
			return false, false
		}
		for _, ps := range s {
			candidates = append(candidates, ps...)
		}
	} else {
		parts = parts[1:]
	}
	for _, p := range candidates {
		obj := p.Scope().Lookup(parts[0])
		if obj == nil {
			continue
		}
		if len(parts) == 1 {
			return true, true
		}
		if member, _, _ := types.LookupFieldOrMethod(obj.Type(), true, p, parts[1]); member != nil {
			return true, true
		}
	}
	return len(candidates) > 0, false
}

// text is a Markdown page.
type text struct{ name, text string }

// declares reports whether the code of the page declares the part of name before the dot.
func (p text) declares(name string) bool {
	first, _, _ := strings.Cut(name, ".")
	return strings.Contains(p.text, "\nvar "+first+" ") || strings.Contains(p.text, "\ntype "+first+" ")
}

// allPages reads README.md and the pages below docs.
func allPages(t *testing.T) []text {
	t.Helper()
	names, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	inner, err := filepath.Glob("internals/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []text
	for _, name := range append(append(names, inner...), "../README.md", "../DESIGN.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text{name, string(b)})
	}
	return all
}
