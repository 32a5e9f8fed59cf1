package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestGuaranteesNameTests shows that each test named in docs/guarantees.md exists. So a promise
// cannot lose its test unnoticed.
func TestGuaranteesNameTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(rootDir, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	source := map[string]string{} // package path to the joined text of its files
	place, names := "", 0
	for row := range strings.Lines(string(page)) {
		if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| promise") || strings.HasPrefix(row, "| number") {
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

// TestPromisesHaveTests shows that each numbered promise has a row in docs/guarantees.md, and that
// each test of the row names the number.
func TestPromisesHaveTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(rootDir, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$`)
	name := regexp.MustCompile("`([^`]+)`")
	source, cells, without := map[string]string{}, map[string]string{}, 0
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		if _, twice := cells[m[1]]; twice {
			t.Errorf("%s has two rows", m[1])
		}
		cells[m[1]] = m[2]
	}
	for series, last := range map[string]int{"S": 78, "W": 40, "B": 70, "H": 30, "Q": 44} {
		for i := 1; i <= last; i++ {
			number := series + strconv.Itoa(i)
			cell, ok := cells[number]
			tests := name.FindAllStringSubmatch(cell, -1)
			switch {
			case !ok:
				t.Errorf("%s has no row", number)
			case strings.HasPrefix(cell, "not promised: "):
				without++
			case len(tests) == 0:
				t.Errorf("%s has no test", number)
			}
			place := ""
			for _, m := range tests {
				test := m[1]
				if dir, rest, ok := strings.Cut(test, ": "); ok {
					place, test = dir, rest
				}
				if !regexp.MustCompile(`\b` + number + `\b`).MatchString(textOfTest(sourceOf(t, source, place), test)) {
					t.Errorf("%s: %s in %s does not name it", number, test, place)
				}
			}
		}
	}
	if without > 3 {
		t.Errorf("%d numbers are not promised: write tests", without)
	}
}

// textOfTest returns the text of a test function, or of a case's line, with the comment above it.
func textOfTest(source, name string) string {
	var b strings.Builder
	for _, sign := range []string{"func " + name + "(", `"` + name + `":`, `Name: "` + name + `"`, `{"` + name + `",`} {
		for at := 0; ; at++ {
			i := strings.Index(source[at:], sign)
			if i < 0 {
				break
			}
			at += i
			begin, end := strings.LastIndexByte(source[:at], '\n')+1, "\n"
			for begin > 0 {
				above := strings.LastIndexByte(source[:begin-1], '\n') + 1
				if !strings.HasPrefix(strings.TrimSpace(source[above:begin]), "//") {
					break
				}
				begin = above
			}
			if strings.HasPrefix(sign, "func ") {
				end = "\n}\n"
			}
			text, _, _ := strings.Cut(source[at:], end)
			b.WriteString(source[begin:at] + text + "\n")
		}
	}
	return b.String()
}

// TestNotice shows that NOTICE acknowledges each system that Swarmiji follows, and copies none of
// them (S77, W40).
func TestNotice(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(rootDir, "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"Swarmiji", "Celery", "die-roboter", "Octobot", "Resque", "WorkKit", "Bedrock::Jobs", "hworker", "hipq"} {
		if !strings.Contains(string(text), "\n  "+system) {
			t.Errorf("NOTICE does not acknowledge %s", system)
		}
	}
}

// hasTest reports whether a package has a test function or a case of this name.
func hasTest(t *testing.T, source map[string]string, place, name string) bool {
	t.Helper()
	text := sourceOf(t, source, place)
	return strings.Contains(text, "func "+name+"(") || strings.Contains(text, `"`+name+`"`)
}

// sourceOf returns the joined text of a package's Go files. It caches the text in source.
func sourceOf(t *testing.T, source map[string]string, place string) string {
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
	return text
}
