package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuaranteesNameTests: each test that docs/guarantees.md names is there, so that a promise cannot lose its test unseen.
func TestGuaranteesNameTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(rootDir, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	source := map[string]string{} // of a package, joined
	place, names := "", 0
	for row := range strings.Lines(string(page)) {
		if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| promise") {
			continue
		}
		cells := strings.Split(row, " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1) {
			name := m[1]
			if dir, test, ok := strings.Cut(name, ": "); ok {
				place, name = dir, test
			}
			names++
			if !hasTest(t, source, place, name) {
				t.Errorf("docs/guarantees.md names %s in %s, which is not there: %s", name, place, strings.TrimSpace(row))
			}
		}
	}
	if names < 30 {
		t.Errorf("only %d tests are named: the page has another form than this test reads", names)
	}
}

// hasTest reports whether a package has a test function or a case of this name.
func hasTest(t *testing.T, source map[string]string, place, name string) bool {
	t.Helper()
	text, ok := source[place]
	if !ok {
		dir := place
		if place == "brokertest" || place == "resultstoretest" {
			dir = map[string]string{"brokertest": "broker/brokertest", "resultstoretest": "resultstore/resultstoretest"}[place]
		}
		files, err := filepath.Glob(filepath.Join(rootDir, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("docs/guarantees.md names the package %s, which has no Go files (%v)", place, err)
		}
		var b strings.Builder
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(data)
		}
		text = b.String()
		source[place] = text
	}
	return strings.Contains(text, "func "+name+"(") || strings.Contains(text, `"`+name+`"`)
}
