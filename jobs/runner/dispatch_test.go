package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// road contains a broker, a producer and a store of results.
type road struct {
	t       testing.TB
	broker  broker.Broker
	results resultstore.ResultStore
	*producer.Producer
}

func newRoad(t testing.TB, b broker.Broker, results resultstore.ResultStore) *road {
	t.Helper()
	r := &road{t: t, broker: b, results: results}
	r.Producer = r.producer()
	return r
}

// memoryRoad returns a road in memory.
func memoryRoad(t testing.TB) *road {
	t.Helper()
	b, results := membroker.New(), memresults.New(memresults.Config{})
	t.Cleanup(func() {
		if err := errors.Join(b.Close(context.Background()), results.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return newRoad(t, b, results)
}

func (r *road) producer() *producer.Producer {
	r.t.Helper()
	p, err := producer.New(producer.Config{Broker: r.broker, Results: r.results, Logger: quiet})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	return p
}

// consumer returns a consumer. If s is not nil, it checks with Current that runs are current.
func (r *road) consumer(s *jobs.Service) *consumer.Consumer {
	r.t.Helper()
	c := consumer.Config{Broker: r.broker, Results: r.results, Logger: quiet}
	if s != nil {
		c.Middleware = []middleware.Middleware{runner.Current(s)}
	}
	made, err := consumer.New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return made
}

// consume runs c until stop is called. stop waits for its end.
func (r *road) consume(c *consumer.Consumer) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("consumer: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

func dispatch[A, R any](t testing.TB, r *runner.Runner, d task.Task[A, R], names ...string) {
	t.Helper()
	if err := runner.Dispatch(r, d, names...); err != nil {
		t.Fatal(err)
	}
}

// TestDispatch shows that the end of a task ends its job.
func TestDispatch(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		c := road.consumer(s.Service)
		attempts := atomic.Int64{}
		handle(t, c, sum, func(c ctx, at state) (state, error) {
			if attempts.Add(1) == 1 {
				return at, task.Retry(errors.New("not yet"), task.After(time.Minute))
			}
			return state{at.N + 10}, nil
		})
		handle(t, c, work, func(c ctx, at state) (any, error) {
			if at.N == 0 {
				return "no object", nil
			}
			return nil, errors.New("no luck")
		})
		road.consume(c)
		r := s.runner(runner.Config{Submit: road, Results: road.results})
		dispatch(t, r, sum, "www-prod/Sum me", "sum")
		dispatch(t, r, work)
		s.run(r)

		repeated := s.put(jobs.Spec{Name: "www-prod/Sum me", Data: []byte(`{"n":5}`), Repeat: "SCHEDULED, +1 HOUR"})
		once := s.put(jobs.Spec{Name: "sum", Priority: task.Set(-7)})
		stays := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":0,"x":1}`), Repeat: "FINISHED, +1 DAY"})
		fails := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
		unfit := s.put(jobs.Spec{Name: "work", Data: []byte(`{"n":"seven"}`)})
		other := s.put(jobs.Spec{Name: "nobody's"})
		time.Sleep(2*time.Hour + time.Second)
		s.is(repeated, jobs.Queued, `{"n":35}`)
		s.is(once, "", "")
		s.is(stays, jobs.Queued, `{"n":0,"x":1}`)
		s.is(other, jobs.Queued, `{}`)
		if j := s.job(fails); j.State != jobs.Failed || j.Reason != "no luck" {
			t.Errorf("%+v", j)
		}
		if j := s.job(unfit); j.State != jobs.Failed || !strings.Contains(j.Reason, task.ErrBadArgs.Error()) {
			t.Errorf("%+v", j)
		}
		if j := s.job(repeated); j.Run != 3 || j.Token != 3 {
			t.Errorf("%+v", j)
		}
		if st := r.Stats(); st.Submitted != 6 || st.Finished != 5 || st.Failed != 2 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDispatchedResultElsewhere shows that a job fails if the consumer stores its result in another
// store.
func TestDispatchedResultElsewhere(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		archive := memresults.New(memresults.Config{})
		defer func() { _ = archive.Close(context.Background()) }()
		c, err := consumer.New(consumer.Config{
			Broker: road.broker, Results: road.results, Stores: map[string]resultstore.ResultStore{"archive": archive},
			Defaults: task.Metadata{ResultStore: task.Set("archive")}, Logger: quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		handle(t, c, sum, func(_ ctx, at state) (state, error) { return at, nil })
		road.consume(c)
		r := s.runner(runner.Config{Submit: road, Results: road.results})
		dispatch(t, r, sum)
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":5}`)})
		time.Sleep(time.Minute)
		if j := s.job(id); j.State != jobs.Failed || !strings.Contains(j.Reason, `"archive"`) {
			t.Errorf("%+v", j)
		}
	})
}

// TestDispatchProgress shows that the handler of a task can read its job and report progress.
func TestDispatchProgress(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		c := road.consumer(s.Service)
		handle(t, c, sum, func(c ctx, at state) (state, error) {
			h, ok := runner.FromContext(c)
			if q, _ := task.FromContext(c); !ok || q.ID != jobs.TaskID(h.Row) {
				t.Errorf("%+v, %v", h, ok)
			}
			time.Sleep(time.Minute)
			if err := runner.Progress(c, state{50}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour) // its job is claimed again meanwhile, in the same run
			if err := runner.Progress(c, state{70}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			return state{100}, nil
		})
		road.consume(c)
		r := s.runner(runner.Config{Submit: road, Results: road.results, Timeout: 50 * time.Minute})
		dispatch(t, r, sum)
		s.run(r)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
		time.Sleep(time.Minute + time.Second)
		s.is(id, jobs.Running, `{"n":50}`)
		time.Sleep(time.Hour)
		s.is(id, jobs.Running, `{"n":70}`)
		if j := s.job(id); j.Run != 1 || j.Token != 2 {
			t.Errorf("run %d, token %d", j.Run, j.Token)
		}
		time.Sleep(2 * time.Minute)
		s.is(id, jobs.Queued, `{"n":100}`)
	})
}

// TestDispatchARunnerThatStops shows that tasks continue after a stop, and that a later runner
// finds their ends.
func TestDispatchARunnerThatStops(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		r := s.runner(runner.Config{Submit: road, Results: road.results})
		dispatch(t, r, sum)
		stop := s.run(r)
		const n = 20
		var ids []jobs.ID
		for i := range n {
			ids = append(ids, s.put(jobs.Spec{Name: "sum", Data: fmt.Appendf(nil, `{"n":%d}`, i), Repeat: "FINISHED, +1 DAY"}))
		}
		time.Sleep(time.Second)
		stop()
		for _, id := range ids {
			if j := s.job(id); j.State != jobs.Running || time.Until(j.Due).Round(time.Minute) != runner.DefaultTimeout {
				t.Errorf("%s, due at %v", j.State, j.Due)
			}
		}
		c := road.consumer(s.Service)
		handle(t, c, sum, func(c ctx, at state) (state, error) {
			if at.N == n-1 {
				time.Sleep(10 * time.Minute)
			}
			return state{at.N + 100}, nil
		})
		road.consume(c)
		time.Sleep(5 * time.Minute)
		s.is(ids[0], jobs.Running, `{"n":0}`)

		another := newRoad(t, road.broker, road.results) // another process
		r = s.runner(runner.Config{Submit: another, Results: another.results, Service: serve(t, s.store)})
		dispatch(t, r, sum)
		s.run(r)
		time.Sleep(time.Second)
		for i, id := range ids[:n-1] {
			s.is(id, jobs.Queued, fmt.Sprintf(`{"n":%d}`, i+100))
		}
		time.Sleep(15 * time.Minute)
		s.is(ids[n-1], jobs.Queued, fmt.Sprintf(`{"n":%d}`, n-1+100))
		if st := r.Stats(); st != (runner.Stats{Finished: n, Late: n}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestDispatchATaskThatAwaits shows that a task that waits for an answer longer than Timeout is not
// submitted again.
func TestDispatchATaskThatAwaits(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		r := s.runner(runner.Config{Submit: road, Results: road.results, Timeout: time.Hour})
		dispatch(t, r, sum)
		s.run(r)
		kept, err := deferrals.New(deferrals.Config{Jobs: s.Service, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c, err := consumer.New(consumer.Config{Broker: road.broker, Results: road.results, Deferrals: kept, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		var requests atomic.Int64
		handle(t, c, sum, func(context.Context, state) (state, error) {
			requests.Add(1)
			return state{}, task.Defer("k", task.AnswerWithin(7*24*time.Hour))
		})
		road.consume(c)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +30 DAYS"})
		time.Sleep(3 * time.Hour) // of the bubble's clock
		if n := requests.Load(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		s.is(id, jobs.Running, `{"n":1}`)
		if receipt, err := s.Complete(t.Context(), "sum", "k", state{5}); err != nil || receipt.Kind != jobs.Accepted {
			t.Fatal(receipt, err)
		}
		time.Sleep(time.Hour)
		s.is(id, jobs.Queued, `{"n":5}`)
	})
}

// TestDispatchALoneSubmitter shows that a plain Submitter without Pending works if results are
// JSON.
func TestDispatchALoneSubmitter(t *testing.T) {
	for contentType, want := range map[string]string{"application/json": `QUEUED {"n":7}`, "application/x-other": `FAILED {"n":1}`} {
		inShop(t, func(t *testing.T, s *shop) {
			results := memresults.New(memresults.Config{})
			defer results.Close(context.Background())
			r := s.runner(runner.Config{Submit: blind{}, Results: results})
			dispatch(t, r, sum)
			stop := s.run(r)
			id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
			time.Sleep(time.Second)
			j := s.job(id)
			if err := results.Save(t.Context(), resultstore.Record{
				ID: jobs.TaskID(j), Name: "sum", State: task.StateSucceeded, ContentType: contentType, Result: []byte(`{"n":7}`), TTL: time.Hour,
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			stop()
			if j := s.job(id); fmt.Sprintf("%s %s", j.State, j.Data) != want {
				t.Errorf("%s: %s %s %s", contentType, j.State, j.Data, j.Reason)
			}
		})
	}
}

// blind is a Submitter that returns no handles.
type blind struct{}

func (blind) Submit(ctx, task.Call) (task.Pending, error) { return nil, nil }

// TestDispatchEnds shows the end of a job for each kind of record.
func TestDispatchEnds(t *testing.T) {
	for want, rec := range map[string]resultstore.Record{
		"FAILED: swarmiji: task revoked":                       {State: task.StateRevoked},
		"FAILED: swarmiji: task expired before it could start": {State: task.StateExpired},
		"FAILED: jobs: the task has failed":                    {State: task.StateFailed},
		"FAILED: poor":                                         {State: task.StateFailed, Error: &task.RemoteError{Type: "x", Message: "poor"}},
		"RUNNING: ":                                            {State: task.StateRetrying},
		"QUEUED: ":                                             {State: task.StateSucceeded, ContentType: "application/json", Result: []byte(`null`)},
	} {
		inShop(t, func(t *testing.T, s *shop) {
			results := memresults.New(memresults.Config{})
			defer results.Close(context.Background())
			r := s.runner(runner.Config{Submit: blind{}, Results: results})
			dispatch(t, r, work)
			stop := s.run(r)
			id := s.put(jobs.Spec{Name: "work", Repeat: "FINISHED, +1 DAY"})
			time.Sleep(time.Second)
			rec.ID, rec.Name, rec.TTL = jobs.TaskID(s.job(id)), "work", time.Hour
			if err := results.Save(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			stop()
			if j := s.job(id); string(j.State)+": "+j.Reason != want {
				t.Errorf("%s: %s, want %s", j.State, j.Reason, want)
			}
		})
	}
}

// calls is a Submitter that records calls and may refuse them.
type calls struct {
	mu     sync.Mutex
	all    []task.Call
	refuse func(task.Call) error
}

func (c *calls) Submit(_ ctx, call task.Call) (task.Pending, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if err := c.refuse(call); err != nil {
			return nil, err
		}
	}
	c.all = append(c.all, call)
	return nil, nil
}

// TestDispatchABrokerThatIsAway shows that each job is finally submitted once, in its first run.
func TestDispatchABrokerThatIsAway(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		results := memresults.New(memresults.Config{})
		defer results.Close(context.Background())
		var away atomic.Bool
		away.Store(true)
		to := &calls{refuse: func(task.Call) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}}
		r := s.runner(runner.Config{Submit: to, Results: results})
		dispatch(t, r, sum)
		stop := s.run(r)
		want := map[task.ID]int{}
		for i := range 10 {
			s.put(jobs.Spec{Name: "sum", Data: fmt.Appendf(nil, `{"n":%d}`, i)})
		}
		time.Sleep(time.Hour)
		away.Store(false)
		time.Sleep(2 * time.Minute)
		stop()
		for i := range 10 {
			j := s.job(jobs.ID(i + 1))
			want[jobs.TaskID(j)]++
			if j.Run != 1 || j.State != jobs.Running {
				t.Errorf("%+v", j)
			}
		}
		got := map[task.ID]int{}
		for _, c := range to.all {
			got[c.ID]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if st := r.Stats(); st.Submitted != 10 || st.PutOff == 0 || st.Failed != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDispatchATaskThatIsRefused shows that a task that can never be submitted fails its job and
// blocks no other job.
func TestDispatchATaskThatIsRefused(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		results := memresults.New(memresults.Config{})
		defer results.Close(context.Background())
		to := &calls{refuse: func(c task.Call) error {
			switch c.Args.(state).N {
			case 1:
				return fmt.Errorf("%w: x", task.ErrBadMetadata)
			case 2:
				return errors.New("no such queue")
			}
			return nil
		}}
		var told told
		r := s.runner(runner.Config{Submit: to, Results: results, OnReport: told.note})
		dispatch(t, r, sum)
		for i := range 4 {
			s.put(jobs.Spec{Name: "sum", Data: fmt.Appendf(nil, `{"n":%d}`, i), Priority: task.Set(100 + i)})
		}
		stop := s.run(r)
		time.Sleep(90 * time.Second)
		stop()
		if len(to.all) != 2 {
			t.Errorf("%+v", to.all)
		}
		if j := s.job(2); j.State != jobs.Failed || !strings.Contains(j.Reason, "x") {
			t.Errorf("%+v", j)
		}
		if j := s.job(3); j.State != jobs.Running || j.Run != 1 || j.Token != 2 {
			t.Errorf("%+v", j)
		}
		kinds := map[runner.Problem]int{}
		for _, p := range told.all() {
			kinds[p.Problem]++
		}
		if diff := cmp.Diff(map[runner.Problem]int{runner.ProblemFailed: 1, runner.ProblemRefused: 2}, kinds); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDispatchCurrent shows that a task of an old run is not executed, and that other tasks are.
func TestDispatchCurrent(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		c := road.consumer(s.Service)
		d := newDiary()
		handle(t, c, sum, func(c ctx, at state) (state, error) {
			_, ok := runner.FromContext(c)
			d.note("%d %v", at.N, ok)
			return at, nil
		})
		caught := &calls{}
		r := s.runner(runner.Config{Submit: caught, Results: road.results})
		dispatch(t, r, sum)
		stop := s.run(r)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 HOUR"})
		time.Sleep(time.Second)
		if err := s.Finish(t.Context(), jobs.Finish{ID: id}); err != nil { // directly, not by its task
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		stop()
		if len(caught.all) != 2 {
			t.Fatalf("%d runs", len(caught.all))
		}
		old, now := caught.all[0], caught.all[1]
		follower := now // a follow-up task has the headers of the job's task
		follower.ID, follower.Args = "follower", state{2}
		broken := now
		broken.ID, broken.Args, broken.Headers = "broken", state{3}, map[string]string{jobs.HeaderRun: "x"}
		road.consume(c)
		var ends []string
		for _, call := range []task.Call{old, now, follower, broken, sum.Call(state{4})} {
			p, err := road.Submit(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, fmt.Sprint(p.Result(t.Context(), nil)))
		}
		if !strings.Contains(ends[0], jobs.ErrStale.Error()) {
			t.Errorf("%q", ends[0])
		}
		if diff := cmp.Diff([]string{"<nil>", "<nil>", "<nil>", "<nil>"}, ends[1:]); diff != "" {
			t.Error(diff)
		}
		d.want(t, "2h0m1s: 1 true", "2h0m1s: 2 false", "2h0m1s: 3 false", "2h0m1s: 4 false")
	})
}

// TestDispatchCurrentWithoutAStore shows that a task is delivered again later if its job cannot be
// read.
func TestDispatchCurrentWithoutAStore(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		road := memoryRoad(t)
		gate := &gate{Store: s.store}
		c := road.consumer(serve(t, gate))
		handle(t, c, sum, func(c ctx, at state) (state, error) { return state{at.N + 1}, nil })
		r := s.runner(runner.Config{Submit: road, Results: road.results})
		dispatch(t, r, sum)
		s.run(r)
		gate.closed.Store(true)
		road.consume(c)
		id := s.put(jobs.Spec{Name: "sum", Data: []byte(`{"n":1}`), Repeat: "FINISHED, +1 DAY"})
		time.Sleep(time.Hour)
		s.is(id, jobs.Running, `{"n":1}`)
		gate.closed.Store(false)
		time.Sleep(time.Minute)
		s.is(id, jobs.Queued, `{"n":2}`)
	})
}

// TestDispatchTaskID shows that the id of a task depends on the run, the job and the database.
func TestDispatchTaskID(t *testing.T) {
	j := jobs.Row{Job: jobs.Job{ID: 1, Created: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}, Run: 1}
	same := j
	same.Token, same.State, same.Data, same.Created = 7, jobs.Queued, []byte("{}"), j.Created.In(time.FixedZone("x", 3600))
	if jobs.TaskID(j) != jobs.TaskID(same) || jobs.TaskID(j).Check() != nil {
		t.Error("one run has two ids")
	}
	if got := jobs.TaskID(j); got != "4b247871-3c76-898f-a8e8-c35634fc826b" {
		t.Errorf("the id of a run has changed: %s", got)
	}
	for _, change := range []func(*jobs.Row){
		func(j *jobs.Row) { j.ID = 2 }, func(j *jobs.Row) { j.Run = 2 }, func(j *jobs.Row) { j.Created = j.Created.Add(time.Microsecond) },
	} {
		other := j
		change(&other)
		if jobs.TaskID(j) == jobs.TaskID(other) {
			t.Errorf("%+v has the same", other)
		}
	}
}
