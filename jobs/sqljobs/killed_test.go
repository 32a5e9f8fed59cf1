package sqljobs_test

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

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/jobs/jobstest"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
)

// childEnv makes the test binary a process that works on the database with this URL.
const childEnv = "SQLJOBS_TEST_CHILD"

const (
	childLease = 1500 * time.Millisecond // how long a killed process keeps its claims
	childJobs  = 100                     // number of jobs that each process makes
)

// child creates jobs and ends existing jobs, from several goroutines. It stops when no job is left.
// It prints "made ID", and "run ID TOKEN" and "done ID" around a job's attempt.
func child() {
	db, err := sqltest.New(os.Getenv(childEnv))
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	s, err := sqljobs.New(sqljobs.Config{DB: db})
	if err != nil {
		fmt.Fprintln(os.Stdout, "error", err)
		return
	}
	ctx := context.Background()
	defer func() { _ = s.Close(ctx) }()
	var group, making sync.WaitGroup
	making.Add(4)
	for g := range 4 {
		group.Go(func() {
			made := sync.OnceFunc(making.Done)
			defer made()
			for i := range childJobs / 4 {
				var j *jobstore.Row
				err := s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					now, err := tx.Now(ctx)
					if err != nil {
						return err
					}
					j = job(fmt.Sprintf("kind-%d/%d", os.Getpid(), i%20), i%3, now)
					return tx.Save(ctx, j)
				})
				if err != nil {
					fmt.Fprintln(os.Stdout, "error", err)
					return
				}
				fmt.Fprintln(os.Stdout, "made", j.ID)
			}
			made()
			work(ctx, s, []string{"*", "kind-*", "*1?", "*"}[g])
			// A slow goroutine may have made the last jobs after the others had found none.
			making.Wait()
			work(ctx, s, "*")
		})
	}
	group.Wait()
}

func work(ctx context.Context, s *sqljobs.Store, p string) {
	for {
		got, _, err := taken(ctx, s, pattern(p), 2, childLease)
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			return
		}
		if len(got) == 0 {
			if c, err := s.Coming(ctx, time.Time{}, 1); err != nil || c.Next.IsZero() {
				return
			}
			time.Sleep(20 * time.Millisecond) // a separate process, without a synctest bubble
		}
		for i := range got {
			fmt.Fprintln(os.Stdout, "run", got[i].ID, got[i].Token)
			var ended bool
			err := s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
				ended, err = tx.(jobstore.Dropper).Drop(ctx, got[i].ID, got[i].Token)
				return err
			})
			if err != nil {
				fmt.Fprintln(os.Stdout, "error", err)
				return
			}
			if ended {
				fmt.Fprintln(os.Stdout, "done", got[i].ID)
			}
		}
	}
}

// process is a child process and its output.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	lines []string
}

func start(t *testing.T, dsn string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+dsn)
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// TestKilled shows that a killed process loses no confirmed job. Three processes share a database,
// and one of them is killed by SIGKILL and replaced. Every confirmed job exists and ends once. Only
// the jobs that the killed process had claimed run again, with another token. Promises: Q8.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, dsn string) {
		all := []*process{start(t, dsn), start(t, dsn), start(t, dsn)}
		until(t, "a process works", func() bool { return len(all[0].said()) > childJobs/2 })
		all[0].kill()
		all = append(all, start(t, dsn))
		made, ran, done, held := map[string]bool{}, map[string]map[string]bool{}, map[string]int{}, map[string]bool{}
		for i, p := range all {
			if i > 0 {
				select {
				case <-p.ended:
				case <-time.After(time.Minute):
					t.Fatal("a process does not come to an end")
				}
			}
			for _, line := range p.said() {
				words := strings.Fields(line)
				switch {
				case words[0] == "made" && len(words) == 2:
					made[words[1]] = true
				case words[0] == "run" && len(words) == 3:
					if ran[words[1]] == nil {
						ran[words[1]] = map[string]bool{}
					}
					if ran[words[1]][words[2]] {
						t.Errorf("job %s ran twice with the token %s", words[1], words[2])
					}
					ran[words[1]][words[2]] = true
					if i == 0 {
						held[words[1]] = true
					}
				case words[0] == "done" && len(words) == 2:
					done[words[1]]++
				case i > 0: // the last line of a killed process may be incomplete
					t.Errorf("a process says: %s", line)
				}
			}
		}
		for id := range made {
			if done[id] == 0 && !held[id] { // the killed process may have ended it without a line
				t.Errorf("job %s was confirmed, and never came to its end", id)
			}
		}
		for id, n := range done {
			if n > 1 {
				t.Errorf("job %s was ended %d times", id, n)
			}
		}
		if got := found(t, open(t, dsn), jobstest.Query{}); len(got) > 0 {
			t.Errorf("%d jobs are left: %v", len(got), names(got))
		}
		t.Logf("%d jobs confirmed, %d ended", len(made), len(done))
	})
}

// countNames returns the number of stored names.
func countNames(t *testing.T, dsn string) (n int64) {
	t.Helper()
	c := sqltest.Conn(t, dsn)
	defer func() { _ = c.Close(context.Background()) }()
	err := c.View(bound(t), func(ctx context.Context, tx *sqlconn.Tx) error {
		return tx.Row(ctx, "SELECT count(*) FROM swarmiji_job_name").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
