package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// processNode is the environment variable that holds the name of a [Process].
const processNode = "SWARMIJI_SUITE_NODE"

// ProcessNode returns the name of this process, or "" if no [Processes] started it. Call it first
// in TestMain: the processes run the test binary again.
func ProcessNode() string { return os.Getenv(processNode) }

// Processes is a set of processes that a test starts and kills. They run the test binary again, and
// end with the tests, however the tests end. A process reads its task from its environment. It ends
// when its standard input ends.
type Processes struct {
	t     testing.TB
	env   []string
	heard func(node, line string)
	start chan func() // calls for the one thread whose end also ends the processes
	all   []*Process
}

// Process is one process of [Processes].
type Process struct {
	Node   string
	Killed bool // set by Kill if the process had not been waited for

	cmd    *exec.Cmd
	stdin  io.Closer // its standard input
	read   chan struct{}
	waited bool
	err    error
}

// NewProcesses returns an empty set, whose processes will have env added to their environment.
// heard gets each line that a process writes, from one goroutine per process. The end of the test
// kills all processes.
func NewProcesses(t testing.TB, heard func(node, line string), env ...string) *Processes {
	ps := &Processes{t: t, env: append(os.Environ(), env...), heard: heard, start: make(chan func())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range ps.start {
			f()
		}
	}()
	t.Cleanup(func() {
		for _, p := range ps.all {
			p.Kill()
		}
		close(ps.start)
		<-ended
	})
	return ps
}

// All returns all processes, including those that have ended.
func (ps *Processes) All() []*Process { return ps.all }

// Start starts a process and returns it. It fails the test if the process does not start.
func (ps *Processes) Start() *Process {
	ps.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		ps.t.Fatal(err)
	}
	p := &Process{Node: fmt.Sprint("child-", len(ps.all)), cmd: exec.CommandContext(context.WithoutCancel(ps.t.Context()), exe), read: make(chan struct{})} //nolint:gosec // this program
	p.cmd.Env = append(ps.env[:len(ps.env):len(ps.env)], processNode+"="+p.Node)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = tied()
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		ps.t.Fatal(err)
	}
	p.stdin = in
	failed := make(chan error)
	ps.start <- func() { failed <- p.cmd.Start() }
	if err := <-failed; err != nil {
		ps.t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return // a killed process may leave an incomplete line
			}
			ps.heard(p.Node, strings.TrimSuffix(line, "\n"))
		}
	}()
	ps.all = append(ps.all, p)
	return p
}

// Kill kills the process. It returns when the process has ended and heard got all its lines. It
// does nothing after Kill or Stop.
func (p *Process) Kill() {
	if !p.waited {
		p.Killed = true
		_ = p.cmd.Process.Kill() // the process may have ended
		p.wait()
	}
}

// Signal sends a signal to the process, such as SIGSTOP.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop closes the standard input of the process, waits until the process ends by itself, and
// returns its exit error.
func (p *Process) Stop() error {
	if !p.waited {
		_ = p.stdin.Close() // the process may have ended
		p.wait()
	}
	return p.err
}

// wait waits until the process has ended and all its lines were read, and stores its exit error.
// Call it once.
func (p *Process) wait() {
	p.waited = true
	<-p.read // first read all lines, because Wait closes the pipe
	p.err = p.cmd.Wait()
}

// UntilStopped returns a context that ends when this process's standard input ends: at Stop, or
// when the test has ended.
func UntilStopped() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the error does not matter
		cancel()
	}()
	return ctx, cancel
}
