package scheduletest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// What a child is told by its environment.
const (
	childURL  = "SWARMIJI_SCHEDULETEST_URL"
	childName = "SWARMIJI_SCHEDULETEST_NAME"
	childNode = "SWARMIJI_SCHEDULETEST_NODE"
)

// childLease is how long what a killed child held stays with it.
const childLease = 2 * time.Second

// work is what the children run.
var work = task.New[int, task.None]("scheduletest.work")

// Child runs a listener if this process was started by [Killed], and reports whether it was: the test binary is its own child. An adapter's
// TestMain calls it first of all, and returns when it is true. open is the one that is given to Killed.
func Child(open func(url, name string) (Store, error)) bool {
	node := os.Getenv(childNode)
	if node == "" {
		return false
	}
	if err := listen(open, node); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, node, err) // which is no line that the parent expects
	}
	return true
}

// listen runs what is due until the standard input ends, as it does when the parent says so or has died. It writes a line "node id" when
// a run begins and, at its end, "node late N": how often it was so late that what it held may have been taken from it.
func listen(open func(url, name string) (Store, error), node string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		stop()
	}()
	s, err := open(os.Getenv(childURL), os.Getenv(childName))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }()
	timed := &timed{Store: s}
	defer timed.beat()()
	l, err := schedule.NewListener(schedule.ListenerConfig{
		Store: timed, Name: os.Getenv(childName), NodeID: node, Workers: 3,
		Lease: childLease, Poll: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if err := work.Handle(l, func(ctx context.Context, _ int) (task.None, error) {
		q, _ := task.FromContext(ctx)
		if _, err := fmt.Fprintln(os.Stdout, node, q.ID); err != nil {
			return task.None{}, err
		}
		<-time.After(5 * time.Millisecond) // to be killed in
		return task.None{}, nil
	}); err != nil {
		return err
	}
	if err := l.Run(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, node, "late", timed.late.Load())
	return err
}

// timed counts what takes so long that a lease may end meanwhile: calls of a store, and pauses of the process.
type timed struct {
	Store
	late atomic.Int64
}

// Unwrap leads to what the store offers beyond the port.
func (s *timed) Unwrap() any { return s.Store }

func (s *timed) since(began time.Time) {
	if time.Since(began) > childLease/2 {
		s.late.Add(1)
	}
}

func (s *timed) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Claim(ctx, owner, lease, claims)
}

func (s *timed) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Renew(ctx, owner, lease, ticks)
}

func (s *timed) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Done(ctx, owner, done)
}

// beat looks for pauses until stop is called.
func (s *timed) beat() (stop func()) {
	ended := make(chan struct{})
	go func() {
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
				s.since(last)
			}
		}
	}()
	return func() { close(ended) }
}

// run is a line of a child: it has begun to run a task.
type run struct {
	node string
	id   task.ID
}

// crew are the children of one test.
type crew struct {
	t     *testing.T
	env   []string
	start chan func() // what has to happen on the one thread whose end takes the children along
	all   []*process

	mu   sync.Mutex
	runs []run
	late int      // how often children were late that lived to tell
	odd  []string // lines that are none of these
}

// process is a child.
type process struct {
	node   string
	cmd    *exec.Cmd
	leash  io.Closer // its standard input
	read   chan struct{}
	killed bool
	waited bool
	err    error
}

func newCrew(t *testing.T, url, name string) *crew {
	c := &crew{t: t, env: append(os.Environ(), childURL+"="+url, childName+"="+name), start: make(chan func())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range c.start {
			f()
		}
	}()
	t.Cleanup(func() {
		for _, p := range c.all {
			p.kill()
		}
		close(c.start)
		<-ended
	})
	return c
}

// hire starts a child.
func (c *crew) hire() *process {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	p := &process{node: fmt.Sprint("child-", len(c.all)), cmd: exec.CommandContext(context.WithoutCancel(c.t.Context()), exe), read: make(chan struct{})} //nolint:gosec // this program
	p.cmd.Env = append(c.env[:len(c.env):len(c.env)], childNode+"="+p.node)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = tied()
	in, inErr := p.cmd.StdinPipe()
	out, outErr := p.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		c.t.Fatal(err)
	}
	p.leash = in
	failed := make(chan error)
	c.start <- func() { failed <- p.cmd.Start() }
	if err := <-failed; err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		c.read(p.node, out)
	}()
	c.all = append(c.all, p)
	return p
}

// read notes what a child says until it has ended.
func (c *crew) read(node string, out io.Reader) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // a killed child may leave half a line
		}
		words := strings.Fields(line)
		c.mu.Lock()
		switch {
		case len(words) == 2 && words[0] == node:
			c.runs = append(c.runs, run{node, task.ID(words[1])})
		case len(words) == 3 && words[0] == node && words[1] == "late":
			n, err := strconv.Atoi(words[2])
			if err != nil {
				c.odd = append(c.odd, line)
			}
			c.late += n
		default:
			c.odd = append(c.odd, line)
		}
		c.mu.Unlock()
	}
}

// said returns the lines of all children so far.
func (c *crew) said() []run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]run(nil), c.runs...)
}

// complaints returns what the children said that no child should say.
func (c *crew) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.odd...)
}

// ran returns the tasks that have begun to run.
func (c *crew) ran() map[task.ID]bool {
	ids := map[task.ID]bool{}
	for _, r := range c.said() {
		ids[r.id] = true
	}
	return ids
}

// kill kills the child, unless it has ended, and returns when all it said has been noted.
func (p *process) kill() {
	if !p.waited {
		p.killed = true
		_ = p.cmd.Process.Kill() // it may have ended
		p.wait()
	}
}

// dismiss has the child end by itself, and returns how that went.
func (p *process) dismiss() error {
	if !p.waited {
		_ = p.leash.Close() // it may have ended
		p.wait()
	}
	return p.err
}

func (p *process) wait() {
	p.waited = true
	<-p.read // Wait closes the pipe
	p.err = p.cmd.Wait()
}
