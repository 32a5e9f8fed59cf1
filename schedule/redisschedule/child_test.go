package redisschedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/task"
)

// What a child process is told: it is the test binary itself.
const (
	childAddr     = "SWARMIJI_TEST_ADDR"
	childUser     = "SWARMIJI_TEST_USER"
	childPassword = "SWARMIJI_TEST_PASSWORD"
	childSchedule = "SWARMIJI_TEST_SCHEDULE"
	childNode     = "SWARMIJI_TEST_NODE"
)

var work = task.New[int, task.None]("work")

// child runs a listener, if this process was started for that, until it is told to end.
func child() bool {
	addr := os.Getenv(childAddr)
	if addr == "" {
		return false
	}
	o := &redis.UniversalOptions{Addrs: []string{addr}, Username: os.Getenv(childUser), Password: os.Getenv(childPassword)}
	if err := listen(o, os.Getenv(childSchedule), os.Getenv(childNode)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func listen(o *redis.UniversalOptions, name, node string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	s, err := redisschedule.New(redisschedule.Config{Redis: o, Name: name, Logger: quiet})
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: s, NodeID: node, Lease: 2 * time.Second, Poll: 50 * time.Millisecond, Workers: 3, Logger: quiet})
	if err != nil {
		return err
	}
	ledger := redis.NewUniversalClient(o)
	defer ledger.Close()
	if err := work.Handle(l, func(ctx context.Context, _ int) (task.None, error) {
		q, _ := task.FromContext(ctx)
		if err := ledger.RPush(context.Background(), name+":ledger", node+" "+string(q.ID)).Err(); err != nil {
			return task.None{}, err
		}
		<-time.After(5 * time.Millisecond)
		return task.None{}, nil
	}); err != nil {
		return err
	}
	return l.Run(ctx)
}

// process is a child.
type process struct {
	node   string
	cmd    *exec.Cmd
	killed bool
}

// brood starts children from one thread, which takes them along when it ends.
type brood struct {
	t    *testing.T
	env  []string
	work chan func()
	all  []*process
}

func newBrood(t *testing.T, env ...string) *brood {
	b := &brood{t: t, env: env, work: make(chan func())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for f := range b.work {
			f()
		}
	}()
	t.Cleanup(func() {
		for _, p := range b.all {
			p.kill()
		}
		close(b.work)
		<-ended
	})
	return b
}

func (b *brood) start() *process {
	b.t.Helper()
	p := &process{node: fmt.Sprint("child-", len(b.all)), cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), b.env...), childNode+"="+p.node)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = leash()
	failed := make(chan error)
	b.work <- func() { failed <- p.cmd.Start() }
	if err := <-failed; err != nil {
		b.t.Fatal(err)
	}
	b.all = append(b.all, p)
	return p
}

func (p *process) kill() {
	if !p.killed {
		p.killed = true
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	}
}

// TestKilledListeners: real processes, killed while they work. Nothing is lost; what runs again was held by a killed one, and has the same id.
func TestKilledListeners(t *testing.T) {
	srv := testserver.RequireRedis(t)
	name := testserver.Namespace()
	s := opened(t, redisschedule.Config{Redis: options(srv, srv.Addr()), Name: name})
	sched, err := schedule.New(schedule.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	const entries = 500
	calls := make([]task.Call, entries)
	for i := range calls {
		calls[i] = work.Call(i)
	}
	added, err := sched.AddAll(t.Context(), schedule.Now(), calls)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[task.ID]bool{}
	for _, a := range added {
		ids[schedule.TickID(name, a.ID, a.Next)] = true
	}
	recurring, err := sched.Add(t.Context(), schedule.ByCron("* * * * * * *"), work.Call(-1))
	if err != nil {
		t.Fatal(err)
	}
	b := newBrood(t, childAddr+"="+srv.Addr(), childUser+"="+srv.User(), childPassword+"="+srv.Password(), childSchedule+"="+name)
	ledger := func() []string {
		v, err := srv.Do(t.Context(), "LRANGE", name+":ledger", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range v.([]any) {
			lines = append(lines, l.(string))
		}
		return lines
	}
	until := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.After(60 * time.Second); !cond(); {
			select {
			case <-deadline:
				t.Fatalf("%s: not within a minute; %d lines", what, len(ledger()))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	alive := []*process{b.start(), b.start(), b.start()}
	for i := range 5 {
		until("work to be done", func() bool { return len(ledger()) >= 60*(i+1) })
		alive[i%3].kill()
		alive[i%3] = b.start()
	}
	rest := func() bool {
		v, err := srv.Do(t.Context(), "HLEN", name+":jobs")
		return err == nil && v == int64(1)
	}
	until("all one-shots to be done", rest)
	n := len(ledger())
	until("the recurring entry to go on", func() bool { return len(ledger()) >= n+2 })
	for _, p := range alive {
		p.kill()
	}

	runs := map[task.ID][]string{}
	for _, line := range ledger() {
		node, id, _ := strings.Cut(line, " ")
		runs[task.ID(id)] = append(runs[task.ID(id)], node)
	}
	killed := map[string]bool{}
	for _, p := range b.all {
		killed[p.node] = p.killed
	}
	for id := range ids {
		if len(runs[id]) == 0 {
			t.Errorf("task %s is lost", id)
		}
	}
	again := 0
	for id, nodes := range runs {
		if len(nodes) > 1 {
			again++
		}
		for i, node := range nodes[:len(nodes)-1] {
			if !killed[node] || node == nodes[i+1] {
				t.Errorf("task %s ran on %v", id, nodes)
			}
		}
		if ids[id] {
			continue
		}
		known := false
		for at := recurring.Next; !known && at.Before(time.Now().Add(time.Minute)); at = at.Add(time.Second) {
			known = id == schedule.TickID(name, recurring.ID, at)
		}
		if !known {
			t.Errorf("task %s is of no tick", id)
		}
	}
	t.Logf("%d ticks, %d of them run again", len(runs), again)
}
