package sqlschedule_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
)

// childEnv makes the test binary a listener of the database that is its value.
const childEnv = "SQLSCHEDULE_TEST_CHILD"

// childLease is how long a killed listener holds what it has claimed.
const childLease = 1500 * time.Millisecond

// child runs what is due until it is killed or nothing is left. It prints "run ID" before an entry's run and "done ID" after it was
// finished.
func child() {
	s, err := sqlschedule.New(sqlschedule.Config{URL: os.Getenv(childEnv), Backoff: quick})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	ctx, owner := context.Background(), fmt.Sprint("pid-", os.Getpid())
	defer func() { _ = s.Close(ctx) }()
	for {
		b, err := s.Due(ctx, 64)
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			return
		}
		if len(b.Ticks) == 0 {
			if b.Next.IsZero() {
				return
			}
			time.Sleep(20 * time.Millisecond) // a process of its own, without a bubble
			continue
		}
		claims := make([]schedule.Claim, len(b.Ticks))
		for i, k := range b.Ticks {
			claims[i] = schedule.Claim{Tick: k}
		}
		won, err := s.Claim(ctx, owner, childLease, claims)
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			return
		}
		for i, k := range b.Ticks {
			if !won[i] {
				continue
			}
			fmt.Fprintln(os.Stdout, "run", k.ID, schedule.TickID(s.Name(), k.ID, k.Due))
			held, err := s.Done(ctx, owner, []schedule.Finish{{Tick: k, Remove: true}})
			if err != nil {
				fmt.Fprintln(os.Stdout, "error", err)
				return
			}
			if held[0] {
				fmt.Fprintln(os.Stdout, "done", k.ID)
			}
		}
	}
}

// listener is a child process and what it said.
type listener struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	lines []string
}

func listen(t *testing.T, dsn string) *listener {
	t.Helper()
	l := &listener{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	l.cmd.Env = append(os.Environ(), childEnv+"="+dsn)
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			l.mu.Lock()
			l.lines = append(l.lines, s.Text())
			l.mu.Unlock()
		}
		_ = l.cmd.Wait()
	}()
	t.Cleanup(l.kill)
	return l
}

func (l *listener) kill() {
	_ = l.cmd.Process.Kill()
	<-l.ended
}

func (l *listener) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// Three processes share a schedule of 500 one-shots, and two of them are killed by SIGKILL and replaced. Each entry is run
// and done; only what a killed process held runs again, and then under the same id.
func TestKilled(t *testing.T) {
	for kind, dsn := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return fileURL(t) },
		"postgres": func(t *testing.T) string {
			u, err := testserver.RequirePostgres(t).Database(bound(t, 20*time.Second), testserver.Namespace())
			if err != nil {
				t.Fatal(err)
			}
			return u
		},
	} {
		t.Run(kind, func(t *testing.T) { killed(t, dsn(t)) })
	}
}

func killed(t *testing.T, dsn string) {
	const count, lives = 500, 2
	s := open(t, sqlschedule.Config{URL: dsn})
	defer func() { _ = s.Close(context.Background()) }()
	entries := make([]schedule.Entry, count)
	for i := range entries {
		payload := fmt.Appendf(nil, `{"args":[%d],"cron":"* * * * 0 0 0","job":"x"}`, i)
		entries[i] = schedule.Entry{ID: schedule.ID(payload), Payload: payload, Next: time.Now().Add(-time.Minute)}
	}
	if _, err := s.Add(bound(t, time.Minute), entries); err != nil {
		t.Fatal(err)
	}
	all := []*listener{listen(t, dsn), listen(t, dsn), listen(t, dsn)}
	for i := range lives {
		until(t, "a listener works", func() bool { return len(all[i].said()) > 30 })
		all[i].kill()
		all = append(all, listen(t, dsn))
	}
	runs, ids, done, dead := map[string]int{}, map[string]string{}, map[string]bool{}, map[string]int{}
	for i, l := range all {
		if i >= lives {
			select {
			case <-l.ended:
			case <-time.After(time.Minute):
				t.Fatal("a listener does not come to an end")
			}
		}
		open := map[string]bool{}
		for _, line := range l.said() {
			words := strings.Fields(line)
			switch {
			case words[0] == "run" && len(words) == 3:
				runs[words[1]]++
				open[words[1]] = true
				if id, ok := ids[words[1]]; ok && id != words[2] {
					t.Errorf("the tick of %s ran under two ids", words[1])
				}
				ids[words[1]] = words[2]
			case words[0] == "done" && len(words) == 2:
				done[words[1]] = true
				delete(open, words[1])
			case i >= lives: // the last line of a killed process may be half of one
				t.Errorf("a listener says: %s", line)
			}
		}
		for id := range open {
			dead[id]++
		}
	}
	for _, e := range entries {
		if runs[e.ID] == 0 {
			t.Errorf("%s was never run", e.ID)
		}
		if again := runs[e.ID] - 1; again > dead[e.ID] {
			t.Errorf("%s ran %d times, and %d of its owners were killed", e.ID, runs[e.ID], dead[e.ID])
		}
	}
	if b, err := s.Due(bound(t, 20*time.Second), 10); err != nil || len(b.Ticks) != 0 || !b.Next.IsZero() {
		t.Errorf("something is left: %v, %v, %v", b.Ticks, b.Next, err)
	}
	t.Logf("%d entries, %d of %d unfinished at a kill", len(entries), len(dead), len(done))
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
