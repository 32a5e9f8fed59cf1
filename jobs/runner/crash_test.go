package runner_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// fate makes a process stop before or after one of its calls. All later calls fail.
type fate struct {
	what  string // the kind of call
	at    int    // the number of the call of this kind
	after bool   // its result is lost
	die   context.CancelFunc

	mu   sync.Mutex
	n    int
	dead bool
}

var errDead = fmt.Errorf("%w: dead", jobs.ErrUnavailable)

func (f *fate) call(what string, fn func() error) error {
	f.mu.Lock()
	if what == f.what {
		f.n++
	}
	mine := what == f.what && f.n == f.at
	f.dead = f.dead || mine && !f.after
	dead := f.dead
	f.mu.Unlock()
	if dead {
		f.die()
		return errDead
	}
	err := fn()
	if mine {
		f.mu.Lock()
		f.dead = true
		f.mu.Unlock()
		f.die()
		return errDead
	}
	return err
}

// mortalStore, mortalResults and mortalRoad are the dependencies of a process that may stop.
type mortalStore struct {
	jobs.Store
	*fate
}

func (m mortalStore) Update(c ctx, fn func(ctx, jobstore.Tx) error) error {
	return m.call("update", func() error { return m.Store.Update(c, fn) })
}

func (m mortalStore) Single(c ctx, fn func(ctx, jobstore.Tx) error) error {
	return m.call("single", func() error { return m.Store.Single(c, fn) })
}

func (m mortalStore) View(c ctx, fn func(ctx, jobstore.Tx) error) error {
	return m.call("view", func() error { return m.Store.View(c, fn) })
}

type mortalResults struct {
	resultstore.ResultStore
	*fate
}

func (m mortalResults) Load(c ctx, id task.ID) (rec resultstore.Record, err error) {
	err = m.call("load", func() error {
		rec, err = m.ResultStore.Load(c, id)
		return err
	})
	return rec, err
}

type mortalRoad struct {
	*road
	*fate
}

func (m mortalRoad) Submit(c ctx, call task.Call) (p task.Pending, err error) {
	err = m.call("submit", func() error {
		p, err = m.road.Submit(c, call)
		return err
	})
	return p, err
}

func (m mortalRoad) SubmitAll(c ctx, calls []task.Call) (p []task.Pending, err error) {
	if m.call("submit all", func() error {
		p, err = m.road.SubmitAll(c, calls)
		return nil
	}) != nil {
		return make([]task.Pending, len(calls)), errDead
	}
	return p, err
}

// TestDispatchCrash stops a runner before and after each of its calls. Another runner completes the
// work: each run ends once, and no run with a recorded end is repeated.
func TestDispatchCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "quick tasks", true: "tasks that wait"}[late], func(t *testing.T) {
			t.Parallel()
			for _, what := range []string{"update", "single", "view", "load", "submit all"} {
				for at := 1; at <= 8; at++ {
					reached := false
					for _, after := range []bool{false, true} {
						f := &fate{what: what, at: at, after: after}
						synctest.Test(t, func(t *testing.T) { crash(t, f, late) })
						reached = reached || f.dead
					}
					if !reached && at == 1 {
						t.Errorf("nobody died at: %s", what)
					}
					if !reached {
						break
					}
				}
			}
		})
	}
}

// crash runs three jobs, during which the first of two runners stops.
func crash(t *testing.T, f *fate, late bool) {
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, store: store}
	if s.Service, err = jobs.New(jobs.Config{Store: store, Logger: quiet, Poll: time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), store.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	b, results := membroker.New(), memresults.New(memresults.Config{})
	t.Cleanup(func() {
		if err := errors.Join(b.Close(context.Background()), results.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	roads := [2]*road{newRoad(t, b, results), newRoad(t, b, results)}

	var mu sync.Mutex
	ran := map[task.ID]int{}
	c := roads[1].consumer(s.Service)
	handle(t, c, sum, func(c ctx, at state) (state, error) {
		q, _ := task.FromContext(c)
		mu.Lock()
		ran[q.ID]++
		mu.Unlock()
		return state{at.N + 1}, nil
	})
	handle(t, c, work, func(ctx, state) (any, error) { return nil, errors.New("no luck") })
	if !late {
		roads[1].consume(c)
	}

	repeated := s.put(jobs.Spec{Name: "sum", Repeat: "SCHEDULED, +1 MINUTE"})
	once := s.put(jobs.Spec{Name: "sum"})
	fails := s.put(jobs.Spec{Name: "work"})

	life, die := context.WithCancel(t.Context())
	defer die()
	f.die = die
	service, err := jobs.New(jobs.Config{Store: mortalStore{store, f}, Logger: quiet, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	first := s.runner(runner.Config{
		Service: service, Submit: mortalRoad{roads[0], f}, Results: mortalResults{results, f}, ShutdownTimeout: time.Second, Sweep: 40 * time.Second,
		Lease: 3 * time.Second,
	})
	second := s.runner(runner.Config{Submit: roads[1], Results: results, Lease: 3 * time.Second})
	for _, r := range []*runner.Runner{first, second} {
		dispatch(t, r, sum)
		dispatch(t, r, work)
	}
	const lives = 100 * time.Second
	timer := time.AfterFunc(lives, die)
	defer timer.Stop()
	if err := first.Run(life); err != nil {
		t.Errorf("the first runner: %v", err)
	}
	if err := service.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.run(second)
	if late {
		time.Sleep(time.Minute)
		roads[1].consume(c)
	}
	time.Sleep(210 * time.Second)

	where := fmt.Sprintf("dead at %s %d, after: %v", f.what, f.at, f.after)
	s.is(once, "", "")
	if j := s.job(fails); j.State != jobs.Failed || j.Reason != "no luck" {
		t.Errorf("%s: %+v", where, j)
	}
	j := s.job(repeated)
	for range 30 { // a run may be in progress
		if j.State == jobs.Queued {
			break
		}
		time.Sleep(time.Second)
		j = s.job(repeated)
	}
	if want := fmt.Sprintf(`{"n":%d}`, j.Run); j.State != jobs.Queued || string(j.Data) != want || j.Run < 4 {
		t.Errorf("%s: %s with %s after %d runs, which is not one end for each", where, j.State, j.Data, j.Run)
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ran {
		if n > 1 {
			t.Errorf("%s: the task %s ran %d times", where, id, n)
		}
	}
	if len(ran) != int(j.Run)+1 {
		t.Errorf("%s: %d tasks for %d runs", where, len(ran), j.Run+1)
	}
}
