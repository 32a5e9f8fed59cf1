package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// root of the module, seen from this package.
const rootDir = "../.."

// list loads the packages of the module once for all tests.
var list = sync.OnceValues(func() ([]pkg, error) {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	// -e: a package that does not compile still has imports, and other tests tell that it does not compile.
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
	for _, p := range packages(t) {
		s, err := parse(p)
		if err != nil {
			t.Errorf("%s: %v", p.ImportPath, err)
			continue
		}
		report(t, s.checkLength())
		report(t, s.checkInit())
		report(t, s.checkVars())
		report(t, s.checkDocs())
		report(t, s.checkLogKeys())
		report(t, s.checkExposed())
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
		here = "" // "/src" and the like are too short to mean this checkout
	}
	for _, name := range files {
		if filepath.ToSlash(filepath.Dir(name)) == "internal/archtest" {
			continue // its patterns and its examples of what is forbidden
		}
		text, err := readText(filepath.Join(rootDir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // another test's file that came and went
		}
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkText(name, text, here))
	}
}

// A row that nobody stands in is a rule about nothing, and a set that is misspelt lets nothing through or everything.
func TestTables(t *testing.T) {
	known := func(patterns []string) {
		for _, p := range patterns {
			if name, ok := strings.CutPrefix(p, "@"); ok && sets[name] == nil {
				t.Errorf("set %q does not exist", name)
			}
		}
	}
	for _, r := range layers {
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
}
