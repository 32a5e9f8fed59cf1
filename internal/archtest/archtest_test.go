package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// rootDir is the root of the module, relative to this package.
const rootDir = "../.."

// list loads the packages of the module, once for all tests.
var list = sync.OnceValues(func() ([]pkg, error) {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	// -e: a package that does not compile still has imports, and other tests report that it does not
	// compile.
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-json=Dir,ImportPath,Name,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = rootDir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs, nil
		case err != nil:
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := list()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if len(pkgs) < 10 {
		t.Fatalf("go list found %d packages; the module has more", len(pkgs))
	}
	return pkgs
}

// sources returns the parsed sources of all packages, and reports those that cannot be parsed.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Error(err)
	}
	return all
}

// parsed parses the packages of the module, once for all tests.
var parsed = sync.OnceValues(func() ([]*source, error) {
	pkgs, err := list()
	bad := []error{err}
	var all []*source
	for _, p := range pkgs {
		s, err := parse(p)
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", p.ImportPath, err))
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(bad...)
})

func report(t *testing.T, bad []string) {
	t.Helper()
	for _, s := range bad {
		t.Error(s)
	}
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		report(t, checkImports(p))
	}
}

func TestSources(t *testing.T) {
	for _, s := range sources(t) {
		report(t, s.checkLength())
		report(t, s.checkSize())
		report(t, s.checkInit())
		report(t, s.checkVars())
		report(t, s.checkShared(shared))
		report(t, s.checkDocs())
		report(t, s.checkLogKeys())
		report(t, s.checkExposed())
	}
}

// TestCapabilities shows that no code looks for an adapter's optional interface with a type
// assertion, which does not look behind wrappers.
func TestCapabilities(t *testing.T) {
	known := map[string]bool{}
	all := sources(t)
	for _, s := range all {
		for _, name := range s.interfaces() {
			if matches(capable, s.rel) || matches(capable, name) {
				known[name] = true
			}
		}
	}
	for _, name := range capable {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(k string) bool { return k == name || strings.HasPrefix(k, path.Base(name)+".") }) {
			t.Errorf("the table of capable packages names %s, which has no interface", name)
		}
	}
	for _, s := range all {
		report(t, s.checkAssertions(known))
	}
}

func TestTexts(t *testing.T) {
	files, err := projectFiles(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(rootDir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(here, "/") < 2 {
		here = "" // "/src" and similar paths are too short to identify this checkout
	}
	for _, name := range files {
		if filepath.ToSlash(filepath.Dir(name)) == "internal/archtest" {
			continue // its patterns and its examples of forbidden text
		}
		text, err := readText(filepath.Join(rootDir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // a temporary file of another test
		}
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkText(name, text, here))
	}
}

// TestTables shows that every row has a package and every permission is used. A row without a
// package has no effect, and an unused permission hides an unwanted import.
func TestTables(t *testing.T) {
	known := func(patterns []string) {
		for _, p := range patterns {
			if name, ok := strings.CutPrefix(p, "@"); ok && sets[name] == nil {
				t.Errorf("set %q does not exist", name)
			}
		}
	}
	for _, r := range allLayers() {
		known(r.pkgs)
		known(r.may)
		if r.why == "" {
			t.Errorf("the rule of %v has no reason", r.pkgs)
		}
	}
	for _, c := range clients {
		known(c.may)
		known(c.reach)
		if c.why == "" {
			t.Errorf("the rule of %s has no reason", c.path)
		}
	}
	report(t, tables{sets, allLayers(), clients, testingOnly}.checkTables(packages(t)))
	report(t, checkLint(document(t, ".golangci.yml"), parents(packages(t))))
}

// TestMaps shows that the lists of packages in the documents match the tree.
func TestMaps(t *testing.T) {
	pkgs := packages(t)
	users := forUsers(pkgs)
	report(t, compare("doc.go", namedInDoc(document(t, "doc.go")), users, users))
	design := document(t, "DESIGN.md")
	report(t, compare("the map in DESIGN.md", namedInDesign(design), append(parents(pkgs), "docs"), paths(pkgs)))
	report(t, checkLayerTable(design, pkgs))
}

// document reads a file of the project.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
