// Package examples has the tests of the small programs.
package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/raced"
)

// maxLines limits the lines of a main.go.
const maxLines = 120

// Each main.go is short enough to be read at once.
func TestLengths(t *testing.T) {
	files, err := filepath.Glob("*/main.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		text := read(t, file)
		if n := strings.Count(text, "\n"); n >= maxLines {
			t.Errorf("%s has %d lines, want fewer than %d", file, n, maxLines)
		}
	}
}

var prints = regexp.MustCompile(`(?m)^// .*prints:\n//\n((?://\t.*\n)+)`)

// TestOutputs compares each program's output with the output in its comment.
func TestOutputs(t *testing.T) {
	files, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{} // by the program
	for _, file := range files {
		if m := prints.FindStringSubmatch(read(t, file)); m != nil {
			want[filepath.Dir(file)] = strings.ReplaceAll(m[1], "//\t", "")
		}
	}
	for _, name := range []string{"quickstart", "chain", "group", "chord", "schedule", "revoke", "limits", "sealing", "tracing", "order"} {
		if want[name] == "" {
			t.Errorf("the comment of %s does not say what it prints", name)
		}
	}
	bin := t.TempDir() + "/"
	// without data for debuggers, like tests
	args := append([]string{"build", "-ldflags=-s -w", "-o", bin}, raced.Flags()...)
	for name := range want {
		args = append(args, "./"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, text := range want {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, bin+name).Output()
			lines := string(out)
			if i := strings.LastIndex(lines, "\r"); i >= 0 { // a line that was overwritten
				lines = lines[i+1:]
			}
			if err != nil || lines != text {
				t.Errorf("it prints\n%s\n%v; want\n%s", lines, err, text)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
