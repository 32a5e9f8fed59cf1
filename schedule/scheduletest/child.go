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

// What a child is told by its environment.
const (
	childURL  = "SWARMIJI_SCHEDULETEST_URL"
	childName = "SWARMIJI_SCHEDULETEST_NAME"
)

// childLease is how long what a killed child held stays with it.
const childLease = 2 * time.Second

// work is what the children run.
var work = task.New[int, task.None]("scheduletest.work")

// Child runs a listener if this process was started by [Killed], and reports whether it was: the test binary is its own child. An adapter's
// TestMain calls it first of all, and returns when it is true. open is the one that is given to Killed.
func Child(open func(url, name string) (Store, error)) bool {
	node := suite.MemberNode()
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
	ctx, stop := suite.UntilDismissed()
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
	*suite.Crew

	mu   sync.Mutex
	runs []run
	late int      // how often children were late that lived to tell
	odd  []string // lines that are none of these
}

func newCrew(t *testing.T, url, name string) *crew {
	c := &crew{}
	c.Crew = suite.NewCrew(t, c.hear, childURL+"="+url, childName+"="+name)
	return c
}

// hear notes what a child says.
func (c *crew) hear(node, line string) {
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
