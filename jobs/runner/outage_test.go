package runner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// TestQueueGoesOnWhileItsLeaderStops shows that a stopping runner releases its queue at once,
// before its last handler has ended.
func TestQueueGoesOnWhileItsLeaderStops(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, join func() *jobs.Service) {
		began, release := make(chan string, 2), make(chan struct{})
		defer close(release)
		run := func(node string) (stop context.CancelFunc) {
			r, err := runner.New(runner.Config{
				Service: join(), Queue: &queue.Queue{Name: "q", Poll: time.Hour}, Workers: 2, Lease: time.Hour, NodeID: node, ShutdownTimeout: time.Hour, Logger: quiet,
			})
			if err != nil {
				t.Fatal(err)
			}
			handle(t, r, work, func(c ctx, _ state) (any, error) {
				began <- node
				<-release
				return nil, nil
			})
			c, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(c) }()
			t.Cleanup(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			return cancel
		}
		s := join()
		begins := func(node string) {
			t.Helper()
			if _, err := s.Create(t.Context(), jobs.Spec{Name: "work", Queue: "q"}); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-began:
				if got != node {
					t.Fatalf("the job began at %s, want %s", got, node)
				}
			case <-testwait.Long(t).Done():
				t.Fatalf("nobody begins with the job, while a handler of the runner that stops goes on; it was to begin at %s", node)
			}
		}
		stop := run("first")
		begins("first")
		run("second")
		stop()
		begins("second")
	})
}

// TestCutOffRunnerEndsItsHandlers shows that a runner that cannot renew its leases ends its
// handlers before other runners get their jobs.
func TestCutOffRunnerEndsItsHandlers(t *testing.T) {
	for _, named := range []string{"", "q"} {
		inShop(t, func(t *testing.T, s *shop) {
			gate := &gate{Store: s.store}
			d := newDiary()
			start := func(node string, service *jobs.Service) *runner.Runner {
				c := runner.Config{Service: service, NodeID: node}
				if named != "" {
					c.Queue = &queue.Queue{Name: named}
				}
				r := s.runner(c)
				handle(t, r, work, func(c ctx, _ state) (any, error) {
					d.note("%s begins", node)
					<-c.Done()
					d.note("%s ends: %v", node, context.Cause(c))
					return nil, errors.New("interrupted")
				})
				s.run(r)
				return r
			}
			cut := start("cut off", serve(t, gate))
			id := s.put(jobs.Spec{Name: "work", Queue: named})
			time.Sleep(15 * time.Second) // a renewal at 10 s lasts until 40 s
			gate.closed.Store(true)
			start("other", serve(t, s.store))
			time.Sleep(10 * time.Minute)
			gate.closed.Store(false)
			time.Sleep(time.Minute)
			d.about(t, "0s: cut off begins", "37s: cut off ends: "+task.ErrLeaseLost.Error(), "40s: other begins")
			if j := s.job(id); j.State != jobs.Running || j.Run != 1 {
				t.Errorf("the job is %s in run %d: what the first handler returned has counted", j.State, j.Run)
			}
			if st := cut.Stats(); st.Ran+st.Retried+st.Failed != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestCutOffRunnerKeepsWhatHasEnded shows that a success after the end of a lease counts if no
// other worker has the job.
func TestCutOffRunnerKeepsWhatHasEnded(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		gate := &gate{Store: s.store}
		r := s.runner(runner.Config{Service: serve(t, gate)})
		handle(t, r, work, func(c ctx, at state) (any, error) {
			<-c.Done()
			return state{at.N + 1}, nil
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
		time.Sleep(time.Second)
		gate.closed.Store(true)
		// its lease ends at 30 s, and its handler at 27 s
		time.Sleep(26*time.Second + 500*time.Millisecond)
		gate.closed.Store(false)
		time.Sleep(time.Minute)
		s.is(id, jobs.Queued, `{"n":2}`)
		if st := r.Stats(); st != (runner.Stats{Ran: 1}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestCutOffRunnerKeepsItsRequest shows that a request that was sent after the end of a lease is
// not sent again if no other worker has the job.
func TestCutOffRunnerKeepsItsRequest(t *testing.T) {
	for _, named := range []string{"", "q"} {
		inShop(t, func(t *testing.T, s *shop) {
			gate := &gate{Store: s.store}
			c := runner.Config{Service: serve(t, gate)}
			if named != "" {
				c.Queue = &queue.Queue{Name: named}
			}
			r := s.runner(c)
			d := newDiary()
			kind := shipping(func(_ ctx, p parcelOf) error {
				d.note("ask %s", p.To)
				time.Sleep(27*time.Second + 100*time.Millisecond) // it cannot be interrupted
				return nil
			})
			register(t, r, kind)
			s.run(r)
			id := s.ship(kind, named, "x")
			time.Sleep(time.Second)
			gate.closed.Store(true)
			// its lease ends at 30 s, and its handler at 27 s
			time.Sleep(26*time.Second + 500*time.Millisecond)
			gate.closed.Store(false)
			time.Sleep(time.Minute)
			d.about(t, "0s: ask x")
			if j := s.job(id); j.Phase != jobs.Awaiting {
				t.Errorf("%q: %s %s", named, j.State, j.Phase)
			}
			s.tell("x", "yes", jobs.Accepted)
			time.Sleep(time.Minute)
			if st := r.Stats(); st.GivenBack != 0 || st.Deferred != 1 {
				t.Errorf("%q: %+v", named, st)
			}
		})
	}
}

// TestCutOffRunnerGivesBack shows that an interrupted job runs again as soon as the store is
// available, if no other worker has it.
func TestCutOffRunnerGivesBack(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		gate := &gate{Store: s.store}
		r := s.runner(runner.Config{Service: serve(t, gate)})
		d := newDiary()
		handle(t, r, work, func(c ctx, at state) (any, error) {
			d.note("begin")
			select {
			case <-c.Done():
				return nil, context.Cause(c)
			case <-time.After(2 * time.Minute):
				return nil, nil
			}
		})
		s.run(r)
		id := s.put(jobs.Spec{Name: "work", Repeat: "FINISHED, +1 DAY"})
		time.Sleep(time.Second)
		gate.closed.Store(true)
		time.Sleep(26*time.Second + 500*time.Millisecond)
		gate.closed.Store(false)
		time.Sleep(10 * time.Minute)
		s.is(id, jobs.Queued, `{}`)
		st := r.Stats()
		if st.Lost == 1 { // the lease ended before the next attempt to give it back, which has jitter
			st.Lost = 0
		}
		if st != (runner.Stats{Ran: 1, GivenBack: 1}) {
			t.Errorf("%+v, %q", st, d.all())
		}
	})
}

// TestDispatchedJobsOfAQueueHaveNoDeadline shows that a dispatched job runs as long as its task
// waits, and that the next job of its sequence does not start.
func TestDispatchedJobsOfAQueueHaveNoDeadline(t *testing.T) {
	for _, timeout := range []task.Opt[time.Duration]{{}, task.Set(time.Hour)} {
		inShop(t, func(t *testing.T, s *shop) {
			road := memoryRoad(t)
			var told told
			r := s.runner(runner.Config{Submit: road, Results: road.results, Queue: &queue.Queue{Name: "q", Poll: time.Minute}, OnReport: told.note, Lease: 10 * time.Minute})
			dispatch(t, r, sum)
			s.run(r)
			spec := jobs.Spec{Name: "sum", Queue: "q", SequenceKey: "one", Timeout: timeout}
			first, second := s.put(spec), s.put(spec)
			time.Sleep(30 * time.Hour)
			if a, b := s.job(first), s.job(second); a.State != jobs.Running || b.State != jobs.Waiting {
				t.Errorf("the first is %s (%s), the second %s, while the task of the first waits", a.State, a.Reason, b.State)
			}
			c := road.consumer(s.Service)
			handle(t, c, sum, func(_ ctx, at state) (state, error) { return state{at.N + 1}, nil })
			road.consume(c)
			time.Sleep(time.Minute)
			s.is(first, jobs.Finished, `{"n":1}`)
			s.is(second, jobs.Finished, `{"n":1}`)
			for _, r := range told.all() {
				if r.Problem == runner.ProblemFailed {
					t.Errorf("job %d: %v", r.Job.ID, r.Err)
				}
			}
		})
	}
}

// TestLaterThanAllTime shows that Later with a time beyond the valid years harms neither the job
// nor the runner.
func TestLaterThanAllTime(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		never := time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)
		q := queue.Queue{Name: "q", Throttler: queue.ThrottlerFunc(func(_ ctx, l *queue.Admission) error {
			for j := range l.Due() {
				if j.Name == "never" {
					l.Later(j, never)
				} else {
					l.Start(j)
				}
			}
			return nil
		})}
		r := s.runner(runner.Config{Queue: &q})
		handle(t, r, work, func(_ ctx, at state) (any, error) { return nil, nil })
		s.run(r)
		id := s.put(jobs.Spec{Name: "never", Queue: "q"})
		time.Sleep(time.Minute)
		if j := s.job(id); j.State != jobs.Queued || j.NextRun.Year() != 9999 {
			t.Errorf("%s, to run at %v", j.State, j.NextRun)
		}
		done := s.put(jobs.Spec{Name: "work", Queue: "q"})
		time.Sleep(time.Minute)
		s.is(done, jobs.Finished, "{}")
	})
}
