// Package captable holds the results of the conformance suites for each adapter and renders them as
// docs/capabilities.md.
//
// When a suite has run all its cases, it writes a [Report] for the adapter or compares it with the
// committed one. A test of this package does the same with the page. "make capabilities" writes all
// of them again.
package captable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Update is the name of an environment variable. With the value "1", reports and the page are
// written instead of compared.
const Update = "SWARMIJI_UPDATE"

// The values of a promise that is made or not made. Other promises have sizes in bytes or durations
// as values.
const (
	Yes = "yes"
	No  = "no"
)

// Report holds a suite's results for an adapter.
type Report struct {
	Port     string    `json:"port"`
	Promises []Promise `json:"promises"` // in the order of the suite's harness
	Areas    []Area    `json:"areas"`    // in the order of the suite
}

// Promise is a promise of the adapter that the suite has tested.
type Promise struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Area is a part of the suite. It does not hold the number of cases, so a new case that all
// adapters pass changes no report.
type Area struct {
	Name    string `json:"name"`
	Passed  bool   `json:"passed"` // at least one case ran, and all that ran passed
	Skipped []Skip `json:"skipped,omitempty"`
}

// Skip is a case that did not run for the adapter.
type Skip struct {
	Case   string `json:"case"`
	Reason string `json:"reason"`
}

// encode returns a report in its committed form, indented JSON.
func (r Report) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("captable: %w", err)
	}
	return b.Bytes(), nil
}

// Check compares the report with the file, which must be named <port>-<adapter>.json. With update
// it writes the file instead. The error lists the lines that differ and the command that writes the
// file.
func (r Report) Check(file string, update bool) error {
	if port, _, ok := strings.Cut(filepath.Base(file), "-"); !ok || port != r.Port {
		return fmt.Errorf("captable: %s is no name for a report of the port %s", file, r.Port)
	}
	got, err := r.encode()
	if err != nil {
		return err
	}
	return check(file, got, update)
}

func check(file string, got []byte, update bool) error {
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // of docs
			return err
		}
		return os.WriteFile(file, got, 0o644) //nolint:gosec // a page of the documentation
	}
	want, err := os.ReadFile(file) //nolint:gosec // the name comes from a test
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("captable: %s is not what was seen; if that is meant to be, run make capabilities, or this test with %s=1:\n%s",
			file, Update, differences(string(want), string(got)))
	}
	return nil
}

// differences returns the lines that only one of the two texts has. The lines of want have a minus,
// those of got a plus.
func differences(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	only := func(sign string, lines, others []string) {
		left := make(map[string]int)
		for _, l := range others {
			left[l]++
		}
		for _, l := range lines {
			if left[l]--; left[l] < 0 {
				b.WriteString(sign + l + "\n")
			}
		}
	}
	only("-", w, g)
	only("+", g, w)
	if b.Len() == 0 {
		return "the same lines in another order\n"
	}
	return b.String()
}

// Adapter is a report with the name of its adapter.
type Adapter struct {
	Name string
	Report
}

// Read reads all reports of a directory, sorted by file name.
func Read(dir string) ([]Adapter, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("captable: %w", err)
	}
	slices.Sort(files)
	var as []Adapter
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // of the documentation
		if err != nil {
			return nil, fmt.Errorf("captable: %w", err)
		}
		_, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		a := Adapter{Name: name}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&a.Report); err != nil {
			return nil, fmt.Errorf("captable: %s: %w", file, err)
		}
		as = append(as, a)
	}
	return as, nil
}
