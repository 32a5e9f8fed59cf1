package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/examples/demo"
	"github.com/swarmiji/swarmiji/internal/raced"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
)

// asProgram in the environment makes the test binary the program itself, so that tests have real
// processes.
const asProgram = "SWARMIJI_WORKER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		main()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func TestExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"help":         {[]string{"-h"}, 0, "-broker URL"},
		"no broker":    {nil, 2, "-broker is missing"},
		"memory":       {[]string{"-broker", "mem://"}, 2, "no other process"},
		"unknown flag": {[]string{"-colour"}, 2, "-colour"},
		"argument":     {[]string{"-broker", "amqp://h", "x"}, 2, `unexpected argument "x"`},
		"bad URL":      {[]string{"-broker", "kafka://u:hunter2@h"}, 1, "no adapter for kafka"},
		"bad queue":    {[]string{"-broker", "amqp://u:hunter2@h", "-queue", "a b"}, 1, "bad name"},
		"bad workers":  {[]string{"-broker", "amqp://u:hunter2@h", "-workers", "-1"}, 1, "Workers is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if status := run(c.args, &stderr); status != c.status {
				t.Errorf("status is %d, want %d", status, c.status)
			}
			if !strings.Contains(stderr.String(), c.says) || strings.Contains(stderr.String(), "hunter2") {
				t.Errorf("it says %q, want %q and no password", &stderr, c.says)
			}
		})
	}
}

// process is a worker of its own.
type process struct {
	cmd    *exec.Cmd
	stderr *buffer
	ended  chan error
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...), stderr: &buffer{}, ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("the worker said:\n%s", p.stderr)
		}
	})
	return p
}

// wait returns how the process ended.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the worker did not end within 30 s")
		return nil
	}
}

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

// Promises: S1.
//
// TestSubmitMeetsWorker runs the two programs of the README as written there: the worker knows the
// tasks that submit submits.
func TestSubmitMeetsWorker(t *testing.T) {
	submit := filepath.Join(t.TempDir(), "submit")
	// without data for debuggers, like tests
	args := append([]string{"build", "-ldflags=-s -w", "-o", submit}, raced.Flags()...)
	if out, err := exec.Command("go", append(args, "../submit")...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, server := range map[string]func(t *testing.T) string{
		"rabbit":  func(t *testing.T) string { return testserver.RequireRabbit(t).URL() },
		"redis":   func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
		"nats":    func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
		"hworker": func(t *testing.T) string { return "hworker+" + testserver.RequireRedis(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for retries, most of the time
			meet(t, submit, server(t)+"?namespace="+testserver.Namespace())
		})
	}
}

func meet(t *testing.T, submit, url string) {
	t.Helper()
	worker := start(t, "-broker", url, "-queue", "mail", "-workers", "2", "-v")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, submit, "-broker", url, "-queue", "mail").Output()
	const want = "add:     1 + 2 = 3\nretried: succeeded in run 3\nfailed:  run 2 failed, as it was asked to\n"
	if err != nil || string(out) != want {
		t.Fatalf("submit printed %q, %v; want %q", out, err, want)
	}
	if err := worker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.wait(t); err != nil {
		t.Errorf("after SIGTERM the worker ended with %v, want status 0", err)
	}
	if !strings.Contains(worker.stderr.String(), "worker stopped") {
		t.Error("the worker did not say that it stopped")
	}
}

// SIGTERM in the middle of a task: the task is finished, and the worker ends with 0.
func TestStopFinishesWhatRuns(t *testing.T) {
	url := testserver.RequireRabbit(t).URL() + "?namespace=" + testserver.Namespace()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	swarm, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results, Router: router.Static("nap")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(p.Close(ctx), swarm.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	started, err := swarm.Events.Subscribe(ctx, events.Filter{Types: []string{events.TaskStarted}})
	if err != nil {
		t.Fatal(err)
	}
	worker := start(t, "-broker", url, "-queue", "nap", "-workers", "1")
	f, err := demo.Sleep.Submit(ctx, p, demo.Nap{Milliseconds: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := started.Receive(ctx); err != nil {
		t.Fatalf("the task did not start: %v", err)
	}
	if err := worker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if ms, err := f.Get(ctx); ms != 1500 || err != nil {
		t.Errorf("the task slept %d ms, %v; want 1500", ms, err)
	}
	if err := worker.wait(t); err != nil {
		t.Errorf("after SIGTERM the worker ended with %v, want status 0", err)
	}
}
