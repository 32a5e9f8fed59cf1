package runner_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestRunnerResultsBecomeData shows that a result that is an object becomes the data of the next
// run.
func TestRunnerResultsBecomeData(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{Workers: 1})
		handle(t, r, sum, func(_ ctx, at state) (state, error) {
			d.note("from %d", at.N)
			return state{at.N + 10}, nil
		})
		handle(t, r, work, func(_ ctx, at state) (any, error) {
			d.note("work %d", at.N)
			return map[int]any{1: nil, 2: 7, 3: "x", 4: []int{1}, 5: task.None{}}[at.N], nil
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":5}`), Repeat: "SCHEDULED, +1 HOUR"})
		var rest []jobs.ID
		for n := range 5 {
			rest = append(rest, s.put(jobs.Spec{Name: "work", Data: fmt.Appendf(nil, `{"n":%d,"big":12345678901234567890}`, n+1), Repeat: "FINISHED, +1 DAY", Priority: task.Set(200 + n)}))
		}
		time.Sleep(2*time.Hour + time.Second)
		d.want(t, "0s: from 5", "0s: work 1", "0s: work 2", "0s: work 3", "0s: work 4", "0s: work 5", "1h0m0s: from 15", "2h0m0s: from 25")
		s.is(id, jobs.Queued, `{"n":35}`)
		for n, id := range rest { // these results are not objects: the data stay unchanged
			s.is(id, jobs.Queued, fmt.Sprintf(`{"n":%d,"big":12345678901234567890}`, n+1))
		}
		if j := s.job(id); j.Run != 3 || j.Token != 3 {
			t.Errorf("%d runs, %d hand-outs", j.Run, j.Token)
		}
		if st := r.Stats(); st != (runner.Stats{Ran: 8}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestRunnerProgress shows that queries return the progress of a run, and that the next runner
// continues from it.
func TestRunnerProgress(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		r := s.runner(runner.Config{})
		late := make(chan ctx, 1)
		handle(t, r, work, func(c ctx, at state) (any, error) {
			h, ok := runner.FromContext(c)
			if q, has := task.FromContext(c); !ok || !has || h.Name != "work" || q.ID != jobs.TaskID(h.Row) {
				t.Errorf("%+v, %v", h, ok)
			}
			for range 3 {
				time.Sleep(10 * time.Second)
				at.N++
				if err := runner.Progress(c, at); err != nil {
					t.Error(err)
				}
				if h, _ := runner.FromContext(c); string(h.Data) != fmt.Sprintf(`{"n":%d}`, at.N) {
					t.Errorf("its own look: %s", h.Data)
				}
			}
			if err := runner.Progress(c, 7); !errors.Is(err, jobs.ErrBadJob) {
				t.Errorf("a number as data: %v", err)
			}
			if err := runner.Progress(c, func() {}); !errors.Is(err, jobs.ErrBadJob) {
				t.Errorf("a function as data: %v", err)
			}
			late <- c
			return nil, nil
		})
		stop := s.run(r)
		id := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":0}`), Repeat: "FINISHED, +1 DAY"})
		for n := range 3 {
			time.Sleep(10*time.Second + time.Millisecond)
			if n < 2 {
				s.is(id, jobs.Running, fmt.Sprintf(`{"n":%d}`, n+1))
			}
		}
		stop()
		s.is(id, jobs.Queued, `{"n":3}`)
		if err := runner.Progress(<-late, state{9}); !errors.Is(err, jobs.ErrStale) {
			t.Errorf("after its end: %v", err)
		}
		s.is(id, jobs.Queued, `{"n":3}`)
		if err := runner.Progress(t.Context(), state{9}); !errors.Is(err, runner.ErrNoRun) {
			t.Errorf("outside of a run: %v", err)
		}
		if _, ok := runner.FromContext(t.Context()); ok {
			t.Error("a job outside of a run")
		}
	})
}

// TestRunnerRetries shows that attempts are repeated in the same run, and that the data do not show
// it.
func TestRunnerRetries(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{})
		mine := errors.New("no luck")
		var ids sync.Map
		again := func(name string, fn func(c ctx, n int) error, opts ...task.Option) jobs.ID {
			handle(t, r, task.New[map[string]any, task.None](name, opts...), func(c ctx, data map[string]any) (task.None, error) {
				q, _ := task.FromContext(c)
				ids.Store(q.ID, true)
				d.note("%s %d %v", name, q.Retries, data)
				return task.None{}, fn(c, q.Retries)
			})
			return s.put(jobs.Spec{Name: name, Data: []byte(`{"a":1}`), FirstRun: time.Now().Add(time.Minute), Repeat: "SCHEDULED, +1 DAY"})
		}
		want := map[jobs.ID]string{
			again("by its verdict", func(c ctx, n int) error {
				if n < 2 {
					return errors.Join(runner.Progress(c, map[string]int{"a": 2 + n}), task.Retry(mine, task.After(10*time.Second)))
				}
				return nil
				// the next run is a day after the due time of this one
			}): `QUEUED {"a":3} 2000-01-02 00:01:00 run 1`,
			again("by its policy", func(c ctx, n int) error {
				if n == 0 {
					return mine
				}
				return nil
			}, task.WithRetry(task.RetryPolicy{Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: 7 * time.Second}})): `QUEUED {"a":1} 2000-01-02 00:01:00 run 1`,
			again("in the end", func(c ctx, n int) error { return task.Retry(mine) }, task.WithMaxRetries(1), task.WithRetryDelay(time.Second)): `FAILED {"a":1} 2000-01-01 00:01:01 run 1 no luck`,
			again("at once", func(c ctx, n int) error { return mine }):                                                                          `FAILED {"a":1} 2000-01-01 00:01:00 run 1 no luck`,
			again("for good", func(c ctx, n int) error { return task.Retry(task.Fail(mine)) }, task.WithMaxRetries(0)):                          `FAILED {"a":1} 2000-01-01 00:01:00 run 1 no luck`,
		}
		var slept atomic.Int64
		id := again("later", func(c ctx, n int) error {
			if slept.Add(1) < 3 {
				return task.Snooze(5 * time.Second)
			}
			return nil
		}, task.WithMaxRetries(0))
		want[id] = `QUEUED {"a":1} 2000-01-02 00:01:00 run 1`
		stop := s.run(r)
		time.Sleep(10 * time.Minute)
		stop()
		for id, want := range want {
			j := s.job(id)
			got := strings.TrimSpace(fmt.Sprintf("%s %s %s run %d %s", j.State, j.Data, j.NextRun.Format("2006-01-02 15:04:05"), j.Run, j.Reason))
			if got != want {
				t.Errorf("%q:\n got %s\nwant %s", j.Name, got, want)
			}
		}
		different := 0
		ids.Range(func(any, any) bool { different++; return true })
		if different != 6 {
			t.Errorf("%d ids for 6 runs", different)
		}
		if st := r.Stats(); st != (runner.Stats{Ran: 3, Retried: 6, Failed: 3}) {
			t.Errorf("%+v", st)
		}
		lines := map[string]bool{}
		for _, l := range d.all() {
			lines[l] = true
		}
		for _, l := range []string{
			"1m0s: by its verdict 0 map[a:1]", "1m10s: by its verdict 1 map[a:2]", "1m20s: by its verdict 2 map[a:3]", "1m0s: by its policy 0 map[a:1]",
			"1m7s: by its policy 1 map[a:1]", "1m1s: in the end 1 map[a:1]", "1m5s: later 0 map[a:1]", "1m10s: later 0 map[a:1]",
		} {
			if !lines[l] {
				t.Errorf("missing: %s in %q", l, d.all())
			}
		}
	})
}

// TestRunnerHandlersThatGoWrong shows that each faulty handler fails its run with a reason and does
// not harm the runner.
func TestRunnerHandlersThatGoWrong(t *testing.T) {
	for want, fn := range map[string]func(c ctx, at state) (any, error){
		"panic: boom":                     func(ctx, state) (any, error) { panic("boom") },
		"the handler ended its goroutine": func(ctx, state) (any, error) { runtime.Goexit(); return nil, nil },
		"panic: mean":                     func(ctx, state) (any, error) { return nil, panics{} },
		"jobs: bad job: data of 1048588":  func(ctx, state) (any, error) { return map[string]string{"x": strings.Repeat("x", 1<<20+4)}, nil },
		"swarmiji: result cannot be stored": func(ctx, state) (any, error) {
			return func() {}, nil
		},
		"swarmiji: time limit exceeded of 1m0s": func(c ctx, _ state) (any, error) {
			<-c.Done()
			time.Sleep(time.Second)
			return nil, nil
		},
	} {
		inShop(t, func(t *testing.T, s *shop) {
			var told told
			r := s.runner(runner.Config{OnReport: told.note})
			handle(t, r, work.With(task.WithTimeLimit(time.Minute)), fn)
			stop := s.run(r)
			id := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`)})
			time.Sleep(2 * time.Minute)
			if j := s.job(id); j.State != jobs.Failed || !strings.Contains(j.Reason, want) {
				t.Errorf("%s: %q", j.State, j.Reason)
			}
			stop()
			if told := told.all(); len(told) != 1 || told[0].Problem != runner.ProblemFailed || told[0].Job.ID != id || told[0].Err == nil {
				t.Errorf("%+v", told)
			}
		})
	}
}

type panics struct{}

func (panics) Error() string { panic("mean") }

// TestRunnerDataThatDoNotFit shows that the job fails and is not repeated.
func TestRunnerDataThatDoNotFit(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		r := s.runner(runner.Config{})
		handle(t, r, sum, func(_ ctx, at state) (state, error) { t.Error("it ran"); return at, nil })
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":"seven"}`)})
		time.Sleep(time.Minute)
		if j := s.job(id); j.State != jobs.Failed || !strings.Contains(j.Reason, task.ErrBadArgs.Error()) {
			t.Errorf("%s: %s", j.State, j.Reason)
		}
	})
}

// TestRunnerLeases shows that a long job stays with its runner. A job of a dead runner goes to
// another one in the same run.
func TestRunnerLeases(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		s.run(long(s, d))
		s.run(long(s, d))
		s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`)})
		time.Sleep(11 * time.Minute)
		d.want(t, "0s: begin 1, run 1", "10m0s: end 1")

		dead := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":2}`), FirstRun: time.Now().Add(time.Second), Priority: task.Set(1)})
		held := s.put(jobs.Spec{Name: "other"})
		time.Sleep(500 * time.Millisecond)
		for _, h := range s.take("other", 30*time.Second) { // claimed by a worker that dies
			if h.ID != held {
				t.Fatal(h)
			}
		}
		time.Sleep(11 * time.Minute)
		s.is(dead, "", "")
		r := s.runner(runner.Config{})
		handle(t, r, task.New[state, any]("other"), func(c ctx, _ state) (any, error) {
			h, _ := runner.FromContext(c)
			d.note("other, run %d, token %d", h.Run, h.Token)
			return nil, nil
		})
		s.run(r)
		time.Sleep(time.Second)
		d.want(t, "0s: begin 1, run 1", "10m0s: end 1", "11m1s: begin 2, run 1", "21m1s: end 2", "22m0.5s: other, run 1, token 2")
	})
}

func (s *shop) take(name string, lease time.Duration) []jobs.Handout {
	s.t.Helper()
	got, err := s.Get(s.t.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{name}}, Lease: lease})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// long returns a runner whose handler takes ten minutes.
func long(s *shop, d *diary) *runner.Runner {
	r := s.runner(runner.Config{})
	handle(s.t, r, work, func(c ctx, at state) (any, error) {
		h, _ := runner.FromContext(c)
		d.note("begin %d, run %d", at.N, h.Run)
		select {
		case <-time.After(10 * time.Minute):
			d.note("end %d", at.N)
			return nil, nil
		case <-c.Done():
			d.note("cut %d: %v", at.N, context.Cause(c))
			return nil, context.Cause(c)
		}
	})
	return r
}

// TestRunnerAJobThatMovesOn shows that a handler loses a job that another worker ends or claims,
// and that its result is ignored.
func TestRunnerAJobThatMovesOn(t *testing.T) {
	for name, move := range map[string]func(s *shop, id jobs.ID) error{
		"requeued": func(s *shop, id jobs.ID) error { return s.Requeue(s.t.Context(), []jobs.ID{id}, "parked") },
		"failed":   func(s *shop, id jobs.ID) error { return s.Fail(s.t.Context(), jobs.Fail{ID: id, Reason: "by hand"}) },
		"finished": func(s *shop, id jobs.ID) error { return s.Finish(s.t.Context(), jobs.Finish{ID: id}) },
	} {
		inShop(t, func(t *testing.T, s *shop) {
			var told told
			r := s.runner(runner.Config{OnReport: told.note})
			var cause, progress error
			handle(t, r, work, func(c ctx, _ state) (any, error) {
				<-c.Done()
				cause, progress = context.Cause(c), runner.Progress(context.WithoutCancel(c), state{9})
				return state{10}, nil
			})
			stop := s.run(r)
			id := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
			time.Sleep(time.Second)
			if err := move(s, id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(11 * time.Second)
			stop()
			if !errors.Is(cause, task.ErrLeaseLost) || !errors.Is(progress, jobs.ErrStale) {
				t.Errorf("%s: the cause is %v, the progress %v", name, cause, progress)
			}
			if j := s.job(id); string(j.Data) != `{"n":1}` {
				t.Errorf("%s: %s", name, j.Data)
			}
			if st, told := r.Stats(), told.all(); st.Lost != 1 || st.Ran != 0 || len(told) != 1 || told[0].Problem != runner.ProblemLost {
				t.Errorf("%s: %+v, %+v", name, st, told)
			}
		})
	}
}

// TestRunnerRetryAfter shows that a job with RetryAfter has no lease. It is claimed again after its
// time, and the first handler loses it.
func TestRunnerRetryAfter(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{Workers: 2})
		var n atomic.Int64
		handle(t, r, task.New[map[string]any, any]("work"), func(c ctx, data map[string]any) (any, error) {
			mine := n.Add(1)
			d.note("begin %d", mine)
			if mine == 2 {
				time.Sleep(time.Second)
				return map[string]int64{"by": mine}, nil
			}
			<-c.Done()
			d.note("cut %d: %v", mine, errors.Is(context.Cause(c), task.ErrLeaseLost))
			return map[string]int64{"by": mine}, nil
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "work", RetryAfter: "+5 MINUTES", Repeat: "SCHEDULED, +1 DAY"})
		time.Sleep(20 * time.Minute)
		got := d.all()
		if len(got) != 3 || got[0] != "0s: begin 1" {
			t.Errorf("%q", got)
		}
		s.is(id, jobs.Queued, `{"by":2}`)
		if st := r.Stats(); st.Ran != 1 || st.Lost != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestRunnerRetryAfterRepeated shows that a run with RetryAfter can be repeated like any other.
func TestRunnerRetryAfterRepeated(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{})
		handle(t, r, sum, func(c ctx, at state) (state, error) {
			q, _ := task.FromContext(c)
			d.note("%d, retries %d", at.N, q.Retries)
			if q.Retries < 2 {
				return at, errors.Join(runner.Progress(c, state{at.N + 1}), task.Retry(nil, task.After(10*time.Second)))
			}
			return state{at.N + 1}, nil
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum", RetryAfter: "+5 MINUTES", Repeat: "SCHEDULED, +1 DAY"})
		time.Sleep(20 * time.Minute)
		d.want(t, "0s: 0, retries 0", "10s: 1, retries 1", "20s: 2, retries 2")
		s.is(id, jobs.Queued, `{"n":3}`)
		if j := s.job(id); j.Run != 1 || j.Token != 3 || j.NextRun.Sub(j.Scheduled) != 24*time.Hour {
			t.Errorf("%+v", j)
		}
	})
}

// TestRunnerChildren shows that a handler creates children of its job, which runs again with them
// when they are over.
func TestRunnerChildren(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{})
		handle(t, r, sum, func(c ctx, at state) (state, error) {
			j, _ := runner.FromContext(c)
			if len(j.FinishedChildren) > 0 {
				for _, child := range j.FinishedChildren {
					d.note("a child has %s", child.Data)
				}
				return at, nil
			}
			for n := range 2 {
				if _, err := s.Create(c, jobs.Spec{Name: "work", Parent: j.ID, Data: fmt.Appendf(nil, `{"n":%d}`, n)}); err != nil {
					return at, err
				}
			}
			return state{7}, nil
		})
		handle(t, r, work, func(c ctx, at state) (any, error) {
			j, _ := runner.FromContext(c)
			time.Sleep(time.Duration(at.N+1) * time.Minute)
			d.note("child %d of %s", at.N, j.ParentData)
			return state{at.N + 10}, nil
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum"})
		time.Sleep(time.Hour)
		d.want(t, `1m0s: child 0 of {"n":7}`, `2m0s: child 1 of {"n":7}`, `2m0s: a child has {"n":10}`, `2m0s: a child has {"n":11}`)
		s.is(id, "", "")
	})
}

// TestRunnerStop shows that handlers may end after a stop. The jobs of the others are given back
// and continue in the same run.
func TestRunnerStop(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		d := newDiary()
		r := s.runner(runner.Config{ShutdownTimeout: time.Minute, Workers: 3})
		handle(t, r, work, func(c ctx, at state) (any, error) {
			select {
			case <-time.After(time.Duration(at.N) * time.Second):
				return state{at.N + 1}, nil
			case <-c.Done():
				d.note("cut %d: %v", at.N, context.Cause(c))
				return nil, context.Cause(c)
			}
		})
		stop := s.run(r)
		quick := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":30}`), Repeat: "FINISHED, +1 DAY"})
		slow := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":300}`), Repeat: "SCHEDULED, +1 DAY"})
		time.Sleep(time.Second)
		stop()
		after := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`)})
		time.Sleep(time.Minute)
		s.is(quick, jobs.Queued, `{"n":31}`)
		s.is(slow, jobs.Queued, `{"n":300}`)
		s.is(after, jobs.Queued, `{"n":1}`)
		d.want(t, "1m1s: cut 300: "+task.ErrShutdown.Error())
		if j := s.job(slow); j.Run != 0 || j.Token != 1 || j.NextRun.After(time.Now()) {
			t.Errorf("%+v", j)
		}
		if st := r.Stats(); st != (runner.Stats{Ran: 1, GivenBack: 1}) {
			t.Errorf("%+v", st)
		}
		if err := r.Run(t.Context()); !errors.Is(err, runner.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		h := task.HandlerFunc(func(context.Context, *task.Request) (any, error) { return nil, nil })
		if err := r.Register("late", h, task.Metadata{}); !errors.Is(err, runner.ErrRunning) || !strings.Contains(err.Error(), `register "late" before Run`) {
			t.Errorf("Register after Run: %v", err)
		}
	})
}

// TestRunnerAHandlerThatDoesNotEnd shows that Run returns an error if a handler does not return.
func TestRunnerAHandlerThatDoesNotEnd(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		r := s.runner(runner.Config{ShutdownTimeout: time.Second})
		over := make(chan struct{})
		handle(t, r, work, func(ctx, state) (any, error) { <-over; return nil, nil })
		c, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(c) }()
		s.put(jobs.Spec{Name: "work"})
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "1 handlers") {
			t.Errorf("%v", err)
		}
		close(over)
	})
}

// TestRunnerWorkersAndOrder shows that no more handlers run than workers, that the most urgent jobs
// start first, and that no waiting job is claimed.
func TestRunnerWorkersAndOrder(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		var mu sync.Mutex
		var order []int
		running, most := 0, 0
		r := s.runner(runner.Config{Workers: 3})
		handle(t, r, work, func(_ ctx, at state) (any, error) {
			mu.Lock()
			order = append(order, at.N/10)
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil, nil
		})
		for n := range 30 {
			s.put(jobs.Spec{Name: "work", Data: fmt.Appendf(nil, `{"n":%d}`, n), Priority: task.Set(n / 10)})
		}
		stop := s.run(r)
		time.Sleep(500 * time.Millisecond)
		if waiting, err := s.List(t.Context(), jobs.Filter{Name: "work", States: []jobs.State{jobs.Queued}}); err != nil || len(waiting) != 27 {
			t.Errorf("%d wait, %v", len(waiting), err)
		}
		time.Sleep(time.Minute)
		stop()
		if most != 3 || len(order) != 30 {
			t.Errorf("%d at a time, %d in all", most, len(order))
		}
		for i, group := range order { // three start at once, in any order
			if i < group*10-2 || i > group*10+11 {
				t.Errorf("the order: %v", order)
				break
			}
		}
	})
}

// TestRunnerAStoreThatIsAway shows that no job is lost, and that no run is repeated whose end could
// be stored.
// Promises: Q41.
func TestRunnerAStoreThatIsAway(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		gate := &gate{Store: s.store}
		r := s.runner(runner.Config{Service: serve(t, gate), Workers: 4})
		d := newDiary()
		handle(t, r, work, func(_ ctx, at state) (any, error) {
			d.note("run %d", at.N)
			gate.closed.Store(true)
			time.AfterFunc(20*time.Second, func() { gate.closed.Store(false) })
			return state{at.N + 1}, nil
		})
		id := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 HOUR"})
		stop := s.run(r)
		time.Sleep(90 * time.Minute)
		s.is(id, jobs.Queued, `{"n":3}`)
		if len(d.all()) != 2 {
			t.Errorf("%q", d.all())
		}
		stop()
	})
}

// gate is a store that can be unavailable.
type gate struct {
	jobs.Store
	closed atomic.Bool
}

func (g *gate) away() error {
	if g.closed.Load() {
		return fmt.Errorf("%w: away", jobs.ErrUnavailable)
	}
	return nil
}

func (g *gate) Update(c context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return errors.Join(g.away(), ifOpen(g, func() error { return g.Store.Update(c, fn) }))
}

func (g *gate) Single(c context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return errors.Join(g.away(), ifOpen(g, func() error { return g.Store.Single(c, fn) }))
}

func (g *gate) View(c context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return errors.Join(g.away(), ifOpen(g, func() error { return g.Store.View(c, fn) }))
}

func ifOpen(g *gate, fn func() error) error {
	if g.closed.Load() {
		return nil
	}
	return fn()
}

// TestRunnerAClosedService shows that Run returns an error when the service is closed.
func TestRunnerAClosedService(t *testing.T) {
	for _, away := range []bool{false, true} {
		inShop(t, func(t *testing.T, s *shop) {
			service := serve(t, s.store)
			c := runner.Config{Service: service}
			if away {
				results := memresults.New(memresults.Config{})
				defer results.Close(context.Background())
				c.Submit, c.Results = nowhere{}, results
			}
			r := s.runner(c)
			if away {
				dispatch(t, r, work)
			} else {
				handle(t, r, work, func(ctx, state) (any, error) { return nil, nil })
			}
			ended := make(chan error)
			go func() { ended <- r.Run(t.Context()) }()
			time.Sleep(time.Second)
			if err := service.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, jobs.ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	}
}

// replies is a store of results that uses only reply queues.
type replies struct{ *memresults.Store }

func (replies) Replies(ctx, string) (resultstore.Replies, error) { return nil, resultstore.ErrClosed }

type nowhere struct{}

func (nowhere) Submit(ctx, task.Call) (task.Pending, error) { return nil, errors.New("nowhere") }

func TestBadRunners(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		results := memresults.New(memresults.Config{})
		defer results.Close(context.Background())
		for text, c := range map[string]runner.Config{
			"Service is not set":                 {},
			"requires Results":                   {Service: s.Service, Submit: nowhere{}},
			"only to the process that submitted": {Service: s.Service, Submit: nowhere{}, Results: replies{results}},
			"Workers is -1":                      {Service: s.Service, Workers: -1},
			"Lease is 1ms":                       {Service: s.Service, Lease: time.Millisecond},
			"Timeout is 10s, not 30s":            {Service: s.Service, Timeout: 10 * time.Second},
			"the name is not":                    {Service: s.Service, Names: []string{"a", ""}},
			"Queue.Limit is 0.5":                 {Service: s.Service, Queue: &queue.Queue{Name: "q", Limit: 0.5}},
			"Queue.Limit is -1":                  {Service: s.Service, Queue: &queue.Queue{Name: "q", Limit: -1}},
			"Queue.Limit is NaN":                 {Service: s.Service, Queue: &queue.Queue{Name: "q", Limit: math.NaN()}},
		} {
			if _, err := runner.New(c); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
		_, err := runner.New(runner.Config{Submit: nowhere{}, Workers: -1, Results: replies{results}})
		if !errors.Is(err, jobs.ErrUnsupported) || strings.Count(err.Error(), "\n") != 2 {
			t.Errorf("not all problems: %v", err)
		}
		var r resultstore.ResultStore = results

		place := s.runner(runner.Config{})
		if err := runner.Dispatch(place, sum); !errors.Is(err, jobs.ErrUnsupported) {
			t.Errorf("Dispatch in place: %v", err)
		}
		if err := place.Register("a\x00", task.HandlerFunc(nil), task.Metadata{}); err == nil {
			t.Error("a name with a NUL")
		}
		if err := place.Run(t.Context()); err == nil {
			t.Error("it runs nothing")
		}
		some := s.runner(runner.Config{Names: []string{"sum", "nobody's"}})
		handle(t, some, sum, func(_ ctx, at state) (state, error) { return at, nil })
		if err := some.Run(t.Context()); !errors.Is(err, task.ErrUnknownTask) || !strings.Contains(err.Error(), "nobody's") {
			t.Errorf("names without a handler: %v", err)
		}
		away := s.runner(runner.Config{Submit: nowhere{}, Results: r})
		if err := work.Handle(away, func(ctx, state) (any, error) { return nil, nil }); !errors.Is(err, jobs.ErrUnsupported) {
			t.Errorf("Register where jobs are dispatched: %v", err)
		}
		if err := runner.Dispatch(away, sum, "a", "b"); err != nil {
			t.Error(err)
		}
		if err := runner.Dispatch(away, sum, "c", "b"); !errors.Is(err, task.ErrDuplicateTask) {
			t.Errorf("a name twice: %v", err)
		}
		if err := runner.Dispatch(away, sum.With(task.WithIgnoreResult(true)), "d"); !errors.Is(err, jobs.ErrUnsupported) {
			t.Errorf("an ignored result: %v", err)
		}
		if err := runner.Dispatch(away, sum.With(task.WithIdempotent(false)), "d"); !errors.Is(err, jobs.ErrUnsupported) {
			t.Errorf("at most once: %v", err)
		}
		if err := runner.Dispatch(away, task.New[state, state]("no name/for a broker"), "e"); !errors.Is(err, task.ErrBadName) {
			t.Errorf("%v", err)
		}
	})
}
