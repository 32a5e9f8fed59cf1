package runner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

type ctx = context.Context

var quiet = slog.New(slog.DiscardHandler)

// shop is a service and its store.
type shop struct {
	*jobs.Service
	t     testing.TB
	store jobs.Store
}

// inShop runs fn in a synctest bubble whose clock starts at 2000-01-01T00:00:00Z.
func inShop(t *testing.T, fn func(t *testing.T, s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memjobs.New(memjobs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		fn(t, newShop(t, store))
	})
}

func newShop(t testing.TB, store jobs.Store) *shop {
	t.Helper()
	s := &shop{t: t, store: store, Service: serve(t, store)}
	t.Cleanup(func() {
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// serve returns a service over store, which is closed before the store.
func serve(t testing.TB, store jobs.Store) *jobs.Service {
	t.Helper()
	s, err := jobs.New(jobs.Config{Store: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shop) runner(c runner.Config) *runner.Runner {
	s.t.Helper()
	if c.Service == nil {
		c.Service = s.Service
	}
	if c.Logger == nil {
		c.Logger = quiet
	}
	r, err := runner.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// run runs r until stop is called. stop waits for its end.
func (s *shop) run(r *runner.Runner) (stop func()) {
	s.t.Helper()
	c, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(c) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *shop) put(spec jobs.Spec) jobs.ID {
	s.t.Helper()
	made, err := s.Create(s.t.Context(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return made.ID
}

// is checks the state and the data of a job; "" means that the job is deleted.
func (s *shop) is(id jobs.ID, state jobs.State, data string) {
	s.t.Helper()
	j, err := s.Row(s.t.Context(), id)
	switch {
	case state == "" && errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		s.t.Errorf("job %d: %v", id, err)
	case j.State != state || string(j.Data) != data:
		s.t.Errorf("job %d is %s with %s, want %s with %s", id, j.State, j.Data, state, data)
	}
}

func (s *shop) job(id jobs.ID) jobs.Row {
	s.t.Helper()
	j, err := s.Row(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// diary records the calls of handlers.
type diary struct {
	began time.Time
	mu    sync.Mutex
	lines []string
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v: ", time.Since(d.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func (d *diary) want(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.all()); diff != "" {
		t.Errorf("(-want +done):\n%s", diff)
	}
}

// state is the data of the jobs in these tests.
type state struct {
	N int `json:"n"`
}

var (
	work = task.New[state, any]("work", task.WithRetryDelay(time.Minute))
	sum  = task.New[state, state]("sum")
)

func handle[A, R any](t testing.TB, to task.Registrar, d task.Task[A, R], fn func(ctx, A) (R, error)) {
	t.Helper()
	if err := d.Handle(to, fn); err != nil {
		t.Fatal(err)
	}
}

// told collects the reports of a runner.
type told struct {
	mu   sync.Mutex
	list []runner.Report
}

func (d *told) note(r runner.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, r)
}

func (d *told) all() []runner.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}
