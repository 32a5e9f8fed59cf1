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

// memberNode tells a member of a crew its name.
const memberNode = "SWARMIJI_SUITE_NODE"

// MemberNode is the name of this process in a [Crew], "" if it is in none. A TestMain asks first of all: the test binary is its own child.
func MemberNode() string { return os.Getenv(memberNode) }

// Crew are processes that a test starts and kills. They are the test binary again. They die with the tests, however these end; what each is to do it
// learns from its environment, and it ends by itself when its standard input does.
type Crew struct {
	t     testing.TB
	env   []string
	heard func(node, line string)
	start chan func() // what has to happen on the one thread whose end takes the members along
	all   []*Member
}

// Member is one of these processes.
type Member struct {
	Node   string
	Killed bool // by Kill, while it lived

	cmd    *exec.Cmd
	leash  io.Closer // its standard input
	read   chan struct{}
	waited bool
	err    error
}

// NewCrew makes a crew without members, for which env is added to the environment. heard is told each line that a member writes, by a
// goroutine for each.
func NewCrew(t testing.TB, heard func(node, line string), env ...string) *Crew {
	c := &Crew{t: t, env: append(os.Environ(), env...), heard: heard, start: make(chan func())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range c.start {
			f()
		}
	}()
	t.Cleanup(func() {
		for _, m := range c.all {
			m.Kill()
		}
		close(c.start)
		<-ended
	})
	return c
}

// All returns the members, those that have ended too.
func (c *Crew) All() []*Member { return c.all }

// Hire starts a member.
func (c *Crew) Hire() *Member {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	m := &Member{Node: fmt.Sprint("child-", len(c.all)), cmd: exec.CommandContext(context.WithoutCancel(c.t.Context()), exe), read: make(chan struct{})} //nolint:gosec // this program
	m.cmd.Env = append(c.env[:len(c.env):len(c.env)], memberNode+"="+m.Node)
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = tied()
	in, inErr := m.cmd.StdinPipe()
	out, outErr := m.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		c.t.Fatal(err)
	}
	m.leash = in
	failed := make(chan error)
	c.start <- func() { failed <- m.cmd.Start() }
	if err := <-failed; err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(m.read)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return // a killed member may leave half a line
			}
			c.heard(m.Node, strings.TrimSuffix(line, "\n"))
		}
	}()
	c.all = append(c.all, m)
	return m
}

// Kill kills the member, unless it has ended, and returns when all it said has been heard.
func (m *Member) Kill() {
	if !m.waited {
		m.Killed = true
		_ = m.cmd.Process.Kill() // it may have ended
		m.wait()
	}
}

// Dismiss has the member end by itself, and returns how that went.
func (m *Member) Dismiss() error {
	if !m.waited {
		_ = m.leash.Close() // it may have ended
		m.wait()
	}
	return m.err
}

func (m *Member) wait() {
	m.waited = true
	<-m.read // Wait closes the pipe
	m.err = m.cmd.Wait()
}

// UntilDismissed returns a context that ends when this member is dismissed, or its crew has died.
func UntilDismissed() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		cancel()
	}()
	return ctx, cancel
}
