package scheduletest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// Environment variables with the arguments of a child process.
const (
	childURL  = "SWARMIJI_SCHEDULETEST_URL"
	childName = "SWARMIJI_SCHEDULETEST_NAME"
)

// childLease is the lease of a child's claims.
const childLease = 2 * time.Second

// work is the task that the children run.
var work = task.New[int, task.None]("scheduletest.work")

// Child runs a listener if this process was started by [Killed], and reports whether it was. An
// adapter's TestMain calls it first and returns if the result is true. open must be the function
// given to Killed.
func Child(open func(url, name string) (Store, error)) bool {
	node := suite.ProcessNode()
	if node == "" {
		return false
	}
	if err := listen(open, node); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, node, err) // the parent reports an unexpected line
	}
	return true
}

// listen runs a listener until the standard input ends, because the parent closed it or died. It
// writes a line "node id" when a run starts. At the end it writes "node late N": how often a call
// or a pause was so long that a lease may have ended.
func listen(open func(url, name string) (Store, error), node string) error {
	ctx, stop := suite.UntilStopped()
	defer stop()
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
		<-time.After(5 * time.Millisecond) // time to be killed in
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

// timed is a store that counts delays during which a lease may end: slow calls and pauses of the
// process.
type timed struct {
	Store
	late atomic.Int64
}

// Unwrap returns the store, for its optional interfaces.
func (s *timed) Unwrap() any { return s.Store }

// since counts one delay if more than half a lease has passed since began.
func (s *timed) since(began time.Time) {
	if time.Since(began) > childLease/2 {
		s.late.Add(1)
	}
}

// Claim calls the store and counts a delay if it was slow.
func (s *timed) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Claim(ctx, owner, lease, claims)
}

// Renew calls the store and counts a delay if it was slow.
func (s *timed) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Renew(ctx, owner, lease, ticks)
}

// Done calls the store and counts a delay if it was slow.
func (s *timed) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	defer s.since(time.Now())
	return s.Store.Done(ctx, owner, done)
}

// beat starts a goroutine that counts pauses of the process, until stop is called. Call stop once.
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

// run is a line of a child that has started to run a task.
type run struct {
	node string
	id   task.ID
}

// children are the child processes of one test.
type children struct {
	*suite.Processes

	mu   sync.Mutex
	runs []run
	late int      // delays reported by children that were not killed
	odd  []string // unexpected lines
}

// startChildren prepares child processes for a schedule at url. It starts none; they end with the
// test.
func startChildren(t *testing.T, url, name string) *children {
	c := &children{}
	c.Processes = suite.NewProcesses(t, c.hear, childURL+"="+url, childName+"="+name)
	return c
}

// hear stores one line of a child: a run, a number of delays, or an unexpected line. It takes c.mu.
func (c *children) hear(node, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := strings.Fields(line)
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
}

// said returns a copy of the runs reported so far by all children. It takes c.mu.
func (c *children) said() []run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]run(nil), c.runs...)
}

// complaints returns a copy of the unexpected lines of all children. It takes c.mu.
func (c *children) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.odd...)
}

// ran returns the ids of the tasks that have started. It takes c.mu.
func (c *children) ran() map[task.ID]bool {
	ids := map[task.ID]bool{}
	for _, r := range c.said() {
		ids[r.id] = true
	}
	return ids
}
