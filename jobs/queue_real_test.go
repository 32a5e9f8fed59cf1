package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/task"
)

// onDatabases runs a test with new databases. join returns a service of a further process.
func onDatabases(t *testing.T, test func(t *testing.T, join func() *jobs.Service)) {
	t.Helper()
	run := func(name string, url func(t *testing.T) string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := url(t)
			test(t, func() *jobs.Service { return serviceOn(t, dsn) })
		})
	}
	run("sqlite", func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "jobs.db") })
	run("postgres", func(t *testing.T) string {
		p, schema := testserver.RequirePostgres(t), testserver.Namespace()
		if err := p.Exec(t.Context(), "postgres", "CREATE SCHEMA "+schema); err != nil {
			t.Fatal(err)
		}
		return p.URL() + "&schema=" + schema
	})
}

func serviceOn(t *testing.T, dsn string) *jobs.Service {
	t.Helper()
	store, err := sqljobs.New(sqljobs.Config{DB: sqltest.Open(t, dsn)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := errors.Join(s.Close(ctx), store.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestLimitIsKeptByLeadersThatLoseTheirLeases runs two leaders that never renew their lease. The
// lease alternates between them, and each continues for a while after losing it.
// Promises: Q40.
func TestLimitIsKeptByLeadersThatLoseTheirLeases(t *testing.T) {
	t.Parallel()
	for name, throttler := range map[string]queue.Throttler{"limit": nil, "shares": queue.Shares(shareOf, map[string]float64{"a": 3})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDatabases(t, func(t *testing.T, join func() *jobs.Service) {
				const all = 300
				g := &guarded{T: t, Service: join(), ended: map[jobs.ID]bool{}, left: all, done: make(chan struct{})}
				specs := make([]jobs.Spec, all)
				for i := range specs {
					specs[i] = jobs.Spec{Name: []string{"a.", "b."}[i%2] + fmt.Sprint(i%3), Queue: "q", Weight: task.Set([]float64{1, 1.5, 2, 0, 7}[i%5])}
				}
				if _, err := g.CreateAll(t.Context(), specs); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						g.serve(ctx, join(), queue.Queue{Name: "q", Limit: 5, Throttler: throttler, Poll: 50 * time.Millisecond})
					})
				}
				select {
				case <-g.done:
				case <-ctx.Done():
				}
				cancel()
				wg.Wait()
				if g.left > 0 {
					t.Errorf("%d jobs have not ended", g.left)
				}
				if g.leads < 2 {
					t.Errorf("the lease was had only by %d", g.leads)
				}
			})
		})
	}
}

// guarded checks that the limit is never exceeded.
type guarded struct {
	*testing.T
	*jobs.Service
	mu    sync.Mutex
	ended map[jobs.ID]bool
	left  int
	leads int // number of changes of the leader
	done  chan struct{}
}

// serve serves the queue without renewing its lease.
func (g *guarded) serve(ctx context.Context, s *jobs.Service, q queue.Queue) {
	l, err := s.NewLeader(queue.LeaderConfig{Queue: q, Node: "n", Lease: 200 * time.Millisecond, Report: func(err error) {
		if !errors.Is(err, jobs.ErrUnavailable) {
			g.Error(err)
		}
	}})
	if err != nil {
		g.Error(err)
		return
	}
	var wg sync.WaitGroup
	defer l.Close(context.WithoutCancel(ctx))
	defer wg.Wait()
	fence := int64(0)
	for ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		out, err := l.Next(short, 20)
		cancel()
		if err != nil && !errors.Is(err, jobs.ErrUnavailable) {
			g.Error(err)
			return
		}
		if now := l.Fence(); now != fence && now != 0 {
			fence = now
			g.mu.Lock()
			g.leads++
			g.mu.Unlock()
		}
		if len(out) > 0 {
			g.look(ctx)
		}
		for i := range out {
			wg.Go(func() { g.end(ctx, s, &out[i]) })
		}
	}
}

// look checks the weight of the running jobs.
func (g *guarded) look(ctx context.Context) {
	found, err := g.List(ctx, jobs.Filter{Queue: "q", States: []jobs.State{jobs.Running}})
	if err != nil {
		if ctx.Err() == nil {
			g.Error(err)
		}
		return
	}
	weight, heavy, ofA, heavyA := int64(0), 0, int64(0), 0
	for i := range found {
		j := &found[i]
		if weight += j.Weight; j.Weight > 0 {
			heavy++
		}
		if shareOf(*j) == "a" && j.Weight > 0 {
			ofA += j.Weight
			heavyA++
		}
	}
	if weight > 5000 && heavy > 1 {
		g.Errorf("%d jobs of weight %d run", len(found), weight)
	}
	if strings.Contains(g.Name(), "/shares/") && ofA > 3000 && heavyA > 1 {
		g.Errorf("jobs of weight %d run in a share of 3000", ofA)
	}
}

// end ends a job after some milliseconds.
func (g *guarded) end(ctx context.Context, s *jobs.Service, h *jobs.Handout) {
	<-time.After(time.Duration(h.ID%7) * time.Millisecond)
	switch err := s.Finish(context.WithoutCancel(ctx), jobs.Finish{ID: h.ID, Token: h.Token}); {
	case errors.Is(err, jobs.ErrStale): // its lease has ended
	case err != nil:
		g.Error(err)
	default:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.ended[h.ID] {
			g.Errorf("job %d has ended twice", h.ID)
		}
		g.ended[h.ID] = true
		if g.left--; g.left == 0 {
			close(g.done)
		}
	}
}

// TestStandbyOnDatabases shows that a waiting leader starts a job at once after the other leader
// stops, and after the lease when that leader dies.
// Promises: Q42.
func TestStandbyOnDatabases(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, join func() *jobs.Service) {
		first, second, third := join(), join(), join()
		lead := func(s *jobs.Service, lease time.Duration) *leader {
			l, err := s.NewLeader(queue.LeaderConfig{Queue: queue.Queue{Name: "q", Poll: time.Hour}, Node: "n", Lease: lease, Report: func(err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			kept := keep(l)
			t.Cleanup(func() { kept.Close(context.Background()) })
			return kept
		}
		next := func(l *leader) <-chan jobs.ID {
			got := make(chan jobs.ID, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if out, err := l.Next(ctx, 1); err == nil {
					got <- out[0].ID
				}
				close(got)
			}()
			return got
		}
		create := func() jobs.ID {
			c, err := second.Create(t.Context(), jobs.Spec{Name: "job", Queue: "q"})
			if err != nil {
				t.Fatal(err)
			}
			return c.ID
		}
		a, b, c := lead(first, time.Hour), lead(second, time.Second), lead(third, time.Second)
		one := create()
		if got := <-next(a); got != one {
			t.Fatalf("job %d, want %d", got, one)
		}
		// The lease of the first leader lasts an hour, and no leader polls. Only a notification of the
		// store reaches the second one.
		got := next(b)
		two := create()
		a.Close(t.Context())
		if id := <-got; id != two {
			t.Fatalf("job %d, want %d", id, two)
		}
		// The same holds for a job that is created while it waits.
		got = next(b)
		three := create()
		if id := <-got; id != three {
			t.Fatalf("job %d, want %d", id, three)
		}
		got = next(c)
		b.Die()
		for range 3 { // the jobs of b are claimed again, too
			id, ok := <-got
			if !ok {
				t.Fatal("nobody has taken over")
			}
			if id != one {
				break
			}
			got = next(c)
		}
	})
}
