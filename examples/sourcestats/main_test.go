package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// asProgram is an environment variable that makes the test binary the program itself, so that tests
// have real consumer processes. "1" runs the program, "fail" makes it fail at once.
const asProgram = "SWARMIJI_SOURCESTATS_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "1":
		main()
	case "fail":
		os.Exit(3)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// sum runs the program and returns its JSON output.
func sum(t *testing.T, args ...string) Totals {
	t.Helper()
	var stdout bytes.Buffer
	var stderr buffer
	if status := run(append(args, "-json"), &stdout, &stderr); status != 0 {
		t.Fatalf("%v: status %d: %s", args, status, &stderr)
	}
	var totals Totals
	if err := json.Unmarshal(stdout.Bytes(), &totals); err != nil || strings.Count(stdout.String(), "\n") != 1 {
		t.Fatalf("%v printed %q, want one line of JSON (%v)", args, &stdout, err)
	}
	if !strings.Contains(stderr.String(), "100%") {
		t.Errorf("%v: the progress bar did not come to its end: %q", args, &stderr)
	}
	return totals
}

// tree makes a directory with known counts.
func tree(t *testing.T) (root string, want Totals) {
	t.Helper()
	root = t.TempDir()
	for name, src := range map[string]string{
		"a.go":            "package a\n\nfunc one() {}\n\nfunc (t *T[K]) Two() {\n\tprintln()\n}\n",
		"sub/b.go":        "package b\n\nfunc three() {\n}\n//line a.go:1000\nfunc four() {\n}",
		"testdata/bad.go": "package bad\n\nfunc {\n",
		"z/tie.go":        "package z\n\nfunc Tie() {\n\tprintln()\n}\n",
		"empty.go":        "",
		"not_go.txt":      "package a\nfunc no() {}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, Totals{
		Files: 5, Lines: 7 + 6 + 3 + 5, Functions: 2 + 2 + 1, Longest: Func{Name: "(*T[K]).Two", File: "a.go", Lines: 3},
	}
}

// Each way to count gives the totals of a tree that was counted by hand.
func TestKnownTree(t *testing.T) {
	root, want := tree(t)
	for _, args := range [][]string{{"-local"}, {}, {"-consumers", "3", "-workers", "1"}} {
		if diff := cmp.Diff(want, sum(t, append(args, "-root", root)...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
}

// library returns a part of the standard library with testdata that is invalid Go.
func library(t *testing.T) string {
	t.Helper()
	src, err := goSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(src, "go")
}

func TestTasksAgreeWithLocal(t *testing.T) {
	root := library(t)
	local := sum(t, "-local", "-root", root)
	if local.Files < 100 || local.Functions < 1000 || local.Longest.Lines < 100 {
		t.Fatalf("%s is not what it was: %+v", root, local)
	}
	if diff := cmp.Diff(local, sum(t, "-root", root)); diff != "" {
		t.Errorf("in memory (-local +tasks):\n%s", diff)
	}
}

func TestProcessesAgreeWithLocal(t *testing.T) {
	t.Setenv(asProgram, "1")
	root := library(t)
	local := sum(t, "-local", "-root", root)
	for name, server := range map[string]func(t *testing.T) string{
		"rabbit":   func(t *testing.T) string { return testserver.RequireRabbit(t).URL() + "?" },
		"redis":    func(t *testing.T) string { return testserver.RequireRedis(t).URL() + "?" },
		"nats":     func(t *testing.T) string { return testserver.RequireNATS(t).URL() + "?" },
		"embedded": func(t *testing.T) string { return "nats-embedded://" + t.TempDir() + "?listen=127.0.0.1:0&" },
	} {
		t.Run(name, func(t *testing.T) {
			url := server(t) + "namespace=" + testserver.Namespace()
			if diff := cmp.Diff(local, sum(t, "-root", root, "-broker", url, "-consumers", "2")); diff != "" {
				t.Errorf("through a server (-local +tasks):\n%s", diff)
			}
		})
	}
}

// If a consumer process fails, the command fails at once.
func TestConsumerFails(t *testing.T) {
	url := testserver.RequireRabbit(t).URL() + "?namespace=" + testserver.Namespace()
	t.Setenv(asProgram, "fail")
	root, _ := tree(t)
	var stdout bytes.Buffer
	var stderr buffer
	if status := run([]string{"-root", root, "-broker", url}, &stdout, &stderr); status != 1 || stdout.Len() > 0 {
		t.Errorf("status %d, output %q", status, &stdout)
	}
	for _, want := range []string{errEarly.Error(), "exit status 3"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("it says %q, want %q", &stderr, want)
		}
	}
}

// A consumer process ends with the process that started it, even if that is killed, because its
// input ends.
func TestConsumerOutlivesNobody(t *testing.T) {
	url := testserver.RequireRabbit(t).URL() + "?namespace=" + testserver.Namespace()
	cmd := exec.Command(os.Args[0], "-consume")
	cmd.Env = append(os.Environ(), asProgram+"=1", brokerVariable+"="+url)
	leash, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := leash.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the consumer ended with %v: %s", err, &stderr)
		}
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		t.Fatal("the consumer runs on although its input has ended")
	}
}

// An unreadable file fails the command, with tasks and without them.
func TestUnreadableFile(t *testing.T) {
	missing := []File{{Path: filepath.Join(t.TempDir(), "missing.go")}}
	o := &options{
		queue: "q", root: filepath.Dir(missing[0].Path), consumers: 1, stderr: io.Discard,
		logger: slog.New(slog.DiscardHandler),
	}
	for name, count := range map[string]func(context.Context, *options, []File) (Totals, error){"local": byHand, "tasks": byTasks} {
		if _, err := count(t.Context(), o, missing); err == nil || !strings.Contains(err.Error(), "missing.go") {
			t.Errorf("%s: error is %v, want one that names the file", name, err)
		}
	}
}

func TestArguments(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":         {[]string{"-h"}, 0, "-consumers"},
		"no consumers": {[]string{"-consumers", "0"}, 2, "-consumers"},
		"workers":      {[]string{"-workers", "-1"}, 2, "-workers"},
		"argument":     {[]string{"x"}, 2, `unexpected argument "x"`},
		"no broker":    {[]string{"-consume"}, 2, "-consume needs -broker"},
		"bad broker":   {[]string{"-root", "..", "-broker", "kafka://u:hunter2@h"}, 1, "no adapter"},
		"nobody there": {[]string{"-root", "..", "-broker", "amqp://u:hunter2@127.0.0.1:1"}, 1, "no RabbitMQ answers at 127.0.0.1:1"},
		"no directory": {[]string{"-root", filepath.Join(empty, "none")}, 1, "none"},
		"no files":     {[]string{"-root", empty}, 1, "no .go file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(brokerVariable, "")
			var stdout, stderr bytes.Buffer
			if status := run(c.args, &stdout, &stderr); status != c.status {
				t.Errorf("status is %d, want %d", status, c.status)
			}
			if !strings.Contains(stderr.String(), c.says) || strings.Contains(stderr.String(), "hunter2") {
				t.Errorf("it says %q, want %q and no password", &stderr, c.says)
			}
		})
	}
}
