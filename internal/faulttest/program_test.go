package faulttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spawner starts processes from one thread that lives as long as the tests, see leash.
type spawner struct {
	work  chan func()
	ended chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	err := make(chan error)
	s.work <- func() { err <- cmd.Start() }
	return <-err
}

func (s *spawner) end() {
	close(s.work)
	<-s.ended
}

// program is a running soak program.
type program struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	log    string
	ledger string // its own ledger, if it does not share its fleet's
	done   chan struct{}
	err    error // result of Wait; valid when done is closed
}

// start starts the program with its environment. The end of the test kills it.
func start(t *testing.T, name string, env []string) *program {
	t.Helper()
	p := &program{t: t, name: name, log: filepath.Join(t.TempDir(), name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(shared.soak)
	p.cmd.Env = append(env, "GORACE=halt_on_error=1 atexit_sleep_ms=50")
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = leash()
	if err := shared.spawner.start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if log := p.output(); t.Failed() || strings.Contains(log, "DATA RACE") {
			t.Logf("%s:\n%s", name, tail(log, 48<<10))
		}
		if strings.Contains(p.output(), "DATA RACE") {
			t.Errorf("%s has a data race", name)
		}
	})
	return p
}

func (p *program) output() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func tail(s string, n int) string {
	if len(s) > n {
		return "...\n" + s[len(s)-n:]
	}
	return s
}

// kill kills the program and waits until it has ended.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	<-p.done
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: signal: %v", p.name, err)
	}
}

// terminate sends SIGTERM and fails the test unless the program ends with status 0
// within patience.
func (p *program) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(patience); code != 0 {
		p.t.Errorf("%s ended with status %d after SIGTERM; a stop that had the time to drain is 0", p.name, code)
	}
}

// exit waits for the program's end and returns its status, -1 for a signal. It fails the test if
// the program still runs after the given time.
func (p *program) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.signal(syscall.SIGQUIT) // the log then shows its goroutines
		p.awaitEnd(5 * time.Second)
		p.t.Fatalf("%s still runs after %v", p.name, within)
	}
	return p.status()
}

// awaitEnd waits until the program has ended, at most for the given time.
func (p *program) awaitEnd(most time.Duration) {
	select {
	case <-p.done:
	case <-time.After(most):
	}
}

// status returns the status of a program that has ended, -1 for a signal.
func (p *program) status() int {
	p.t.Helper()
	var status *exec.ExitError
	switch {
	case p.err == nil:
		return 0
	case errors.As(p.err, &status):
		return status.ExitCode()
	}
	p.t.Fatalf("%s: %v", p.name, p.err)
	return 0
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
