package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/raced"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// deferring is a producer and a consumer in memory with a store of deferrals.
type deferring struct {
	t        *testing.T
	producer *producer.Producer
	consumer *consumer.Consumer
	broker   *membroker.Broker
	results  *memresults.Store
	jobs     *jobs.Service
	start    func()
}

func newDeferring(t *testing.T, store jobs.Store, pc producer.Config, cc consumer.Config) *deferring {
	t.Helper()
	if store == nil {
		s, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		store = s
	}
	service, err := jobs.New(jobs.Config{Store: store})
	must0(t, err)
	b, results := membroker.New(), memresults.New(memresults.Config{})
	logger := slog.New(slog.DiscardHandler)
	pc.Broker, pc.Results, pc.Logger, pc.Jobs = b, results, logger, service
	cc.Broker, cc.Results, cc.Logger, cc.Jobs, cc.Deferrals = b, results, logger, service, deferralsOf(t, service)
	cc.Middleware = []middleware.Middleware{runner.Current(service)}
	d := &deferring{t: t, broker: b, results: results, jobs: service}
	d.producer, err = producer.New(pc)
	must0(t, err)
	d.consumer, err = consumer.New(cc)
	must0(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	started := false
	d.start = func() {
		started = true
		go func() { ended <- d.consumer.Run(ctx) }()
	}
	t.Cleanup(func() {
		stop()
		if started {
			must0(t, <-ended)
		}
		closing, cancel := context.WithTimeout(context.Background(), serverPatience)
		defer cancel()
		for _, c := range []interface{ Close(context.Context) error }{d.producer, results, b, service, store} {
			if err := c.Close(closing); err != nil {
				t.Errorf("close %T: %v", c, err)
			}
		}
	})
	return d
}

// deferralsOf returns the deferrals in the store of a service.
func deferralsOf(t *testing.T, s *jobs.Service) *deferrals.Store {
	t.Helper()
	d, err := deferrals.New(deferrals.Config{Jobs: s, Logger: slog.New(slog.DiscardHandler)})
	must0(t, err)
	return d
}

var asking = task.New[int, int]("asking")

func keyOf(i int) string { return fmt.Sprint("key-", i) }

// handle registers a handler that expects an answer, counts itself in asked, and defers.
func (d *deferring) handle(asked *atomic.Int64) {
	d.t.Helper()
	must0(d.t, asking.Handle(d.consumer, func(ctx context.Context, i int) (int, error) {
		if err := task.Expect(ctx, keyOf(i)); err != nil {
			return 0, err
		}
		asked.Add(1)
		return 0, task.Defer("")
	}))
}

// TestManyAreDeferred shows that ten thousand deferred tasks hold no goroutine and no message of
// the broker.
func TestManyAreDeferred(t *testing.T) {
	answered, tasks := 1000, 10_000
	if raced.Enabled { // ten times slower
		answered, tasks = 300, 600
	}
	metrics := new(middleware.Metrics)
	d := newDeferring(t, nil, producer.Config{}, consumer.Config{
		Metrics: metrics, Queues: map[string]consumer.QueueConfig{"default": {Workers: 4, Prefetch: 8}},
	})
	asked := atomic.Int64{}
	d.handle(&asked)
	d.start()
	args := make([]int, tasks)
	for i := range args {
		args[i] = i
	}
	before := runtime.NumGoroutine()
	futures, err := asking.SubmitAll(t.Context(), d.producer, args)
	must0(t, err)
	within(t, "all wait", func() bool { return metrics.Deferred.Count() == int64(tasks) })
	within(t, "no goroutine is left of them", func() bool { return runtime.NumGoroutine() < before+50 })
	s, err := d.broker.Stats(t.Context(), "default")
	must0(t, err)
	if s.Held != 0 || s.Ready != 0 {
		t.Errorf("the broker has %+v", s)
	}
	if n := d.consumer.Stats().Active; n != 0 {
		t.Errorf("%d run", n)
	}
	var answering sync.WaitGroup
	for worker := range 8 {
		answering.Go(func() {
			var batch []jobs.Answer
			for i := worker; i < answered; i += 8 {
				batch = append(batch, jobs.Answer{Name: "asking", Key: keyOf(i), Result: fmt.Append(nil, 2*i)})
			}
			for len(batch) > 0 {
				n := min(len(batch), 100)
				if _, err := d.jobs.AnswerAll(t.Context(), batch[:n]); err != nil {
					t.Error(err)
				}
				batch = batch[n:]
			}
		})
	}
	answering.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	for i, f := range futures[:answered] {
		if got, err := f.Get(ctx); err != nil || got != 2*i {
			t.Fatalf("task %d came to %d, %v", i, got, err)
		}
	}
	if s, err := futures[answered].State(ctx); err != nil || s != task.StateAwaiting {
		t.Errorf("a task without an answer is %s, %v", s, err)
	}
	if n := asked.Load(); n != int64(tasks) {
		t.Errorf("%d ran, want %d", n, tasks)
	}
}

// TestDeferredOnDatabases shows that answers, refusals and missing answers settle their tasks over
// SQLite and PostgreSQL too.
func TestDeferredOnDatabases(t *testing.T) {
	for name, at := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite://" + t.TempDir() + "/jobs.db" },
		"postgres": func(t *testing.T) string {
			return testserver.RequirePostgres(t).URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := open.Jobs(t.Context(), at(t), open.JobsOptions{})
			must0(t, err)
			deferredOn(t, store)
		})
	}
}

func deferredOn(t *testing.T, store jobs.Store) {
	const tasks = 30
	d := newDeferring(t, store, producer.Config{}, consumer.Config{})
	asked := atomic.Int64{}
	d.handle(&asked)
	hasty := task.New[int, int]("hasty")
	must0(t, hasty.Handle(d.consumer, func(context.Context, int) (int, error) {
		return 0, task.Defer("hasty", task.AnswerWithin(time.Millisecond))
	}))
	d.start()
	futures := make([]*task.Future[int], tasks)
	for i := range futures {
		f, err := asking.Submit(t.Context(), d.producer, i)
		must0(t, err)
		futures[i] = f
	}
	late, err := hasty.Submit(t.Context(), d.producer, 1)
	must0(t, err)
	within(t, "all have asked", func() bool { return asked.Load() == tasks })
	for i := range futures {
		var err error
		var got jobs.Receipt
		if i%3 == 2 {
			got, err = d.jobs.Reject(t.Context(), "asking", keyOf(i), fmt.Errorf("no %d", i))
		} else {
			got, err = d.jobs.Complete(t.Context(), "asking", keyOf(i), i)
		}
		if err != nil || got.Kind != jobs.Accepted {
			t.Fatalf("answer %d: %+v, %v", i, got, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	for i, f := range futures {
		got, err := f.Get(ctx)
		switch {
		case i%3 == 2 && (err == nil || err.Error() != fmt.Sprint("no ", i)):
			t.Errorf("task %d failed with %v", i, err)
		case i%3 != 2 && (err != nil || got != i):
			t.Errorf("task %d came to %d, %v", i, got, err)
		}
	}
	if _, err := late.Get(ctx); err == nil || err.Error() != task.ErrAnswerTimeout.Error() {
		t.Errorf("a task without an answer failed with %v", err)
	}
}

// TestDeferredWhilePaused shows that a paused queue receives no answers, and receives them after
// Resume.
func TestDeferredWhilePaused(t *testing.T) {
	bus := memevents.New(memevents.Config{})
	heard, err := bus.Subscribe(t.Context(), events.Filter{Types: []string{events.TaskAwaiting, events.TaskSucceeded}})
	must0(t, err)
	d := newDeferring(t, nil, producer.Config{}, consumer.Config{Events: bus})
	asked := atomic.Int64{}
	d.handle(&asked)
	d.start()
	f, err := asking.Submit(t.Context(), d.producer, 1)
	must0(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	if e, err := heard.Receive(ctx); err != nil || e.Type != events.TaskAwaiting || e.TaskID != f.ID() {
		t.Fatalf("heard %+v, %v", e, err)
	}
	within(t, "that all queues are consumed", func() bool { return d.consumer.Pause() == nil })
	if got, err := d.jobs.Complete(ctx, "asking", keyOf(1), 5); err != nil || got.Kind != jobs.Accepted {
		t.Fatalf("%+v, %v", got, err)
	}
	select {
	case <-f.Done():
		t.Error("a paused consumer has settled an answer")
	case <-time.After(50 * time.Millisecond):
	}
	must0(t, d.consumer.Resume())
	if got, err := f.Get(ctx); err != nil || got != 5 {
		t.Fatalf("%d, %v", got, err)
	}
	if e, err := heard.Receive(ctx); err != nil || e.Type != events.TaskSucceeded || e.Pool < e.Runtime {
		t.Fatalf("heard %+v, %v", e, err)
	}
	_, err = heard.Receive(cancelled(t))
	if err == nil {
		t.Error("there is another event")
	}
	must0(t, heard.Close(ctx))
	must0(t, bus.Close(ctx))
}

// claimingOn is a store whose claims began before a pause: its subscriptions ignore SetQueues.
type claimingOn struct{ deferral.Store }

func (s claimingOn) Subscribe(ctx context.Context, queues []string, o broker.SubscribeOptions) (deferral.Subscription, error) {
	sub, err := s.Store.Subscribe(ctx, queues, o)
	return claimingOnSub{sub}, err
}

type claimingOnSub struct{ deferral.Subscription }

func (claimingOnSub) SetQueues([]string) {}

// TestClaimedWhilePaused shows that an answer whose claim began before the pause of its queue is
// given back, and settles the task after Resume.
func TestClaimedWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err := jobs.New(jobs.Config{Store: store})
		must0(t, err)
		b := newTable(t, func(c *consumer.Config) { c.Deferrals = claimingOn{deferralsOf(t, service)} })
		must0(t, asking.Handle(b.c, func(context.Context, int) (int, error) { return 0, task.Defer("k") }))
		b.run()
		f, err := asking.Submit(t.Context(), b.p, 1)
		must0(t, err)
		synctest.Wait()
		must0(t, b.c.Pause())
		if got, err := service.Complete(t.Context(), "asking", "k", 5); err != nil || got.Kind != jobs.Accepted {
			t.Fatalf("%+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-f.Done():
			t.Error("a paused consumer has settled an answer")
		default:
		}
		must0(t, b.c.Resume())
		if got, err := f.Get(t.Context()); err != nil || got != 5 {
			t.Errorf("after Resume: %d, %v", got, err)
		}
		b.end()
		must0(t, service.Close(t.Context()))
		must0(t, store.Close(t.Context()))
	})
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestAnswersWithoutJSON shows that a consumer without a JSON serializer writes an answer with
// another one. Integers stay integers.
func TestAnswersWithoutJSON(t *testing.T) {
	only := []serializer.Serializer{msgpack.Serializer{}}
	formats := []serializer.Format{msgpack.Compact{}}
	d := newDeferring(t, nil, producer.Config{Wire: serializer.Wire{Serializers: only, Formats: formats}}, consumer.Config{Wire: serializer.Wire{Serializers: only, Formats: formats}, Tuning: consumer.Tuning{MaxResult: 100}})
	asked := atomic.Int64{}
	type found struct {
		N    int64
		List []string
	}
	lookup := task.New[string, found]("lookup")
	must0(t, lookup.Handle(d.consumer, func(_ context.Context, key string) (found, error) { asked.Add(1); return found{}, task.Defer(key) }))
	d.start()
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	f, err := lookup.Submit(ctx, d.producer, "a")
	must0(t, err)
	_, err = d.jobs.Complete(ctx, "lookup", "a", map[string]any{"N": int64(1)<<53 + 1, "List": []string{"x"}})
	must0(t, err)
	if got, err := f.Get(ctx); err != nil || got.N != 1<<53+1 || len(got.List) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	large, err := lookup.Submit(ctx, d.producer, "b")
	must0(t, err)
	_, err = d.jobs.Complete(ctx, "lookup", "b", map[string]any{"List": []string{string(make([]byte, 200))}})
	must0(t, err)
	if _, err := large.Get(ctx); err == nil {
		t.Error("a result that is too large was taken")
	}
}

// TestDispatchedTaskIsDeferred shows that a job that is dispatched as a task ends by the task's
// record, however long the task waits for its answer.
func TestDispatchedTaskIsDeferred(t *testing.T) {
	d := newDeferring(t, nil, producer.Config{}, consumer.Config{})
	asked := make(chan struct{}, 1)
	d.start()
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	type data struct{ N int }
	job := task.New[data, struct{ Answer int }]("asking-job")
	must0(t, job.Handle(d.consumer, func(ctx context.Context, in data) (struct{ Answer int }, error) {
		if err := task.Expect(ctx, keyOf(in.N)); err != nil {
			return struct{ Answer int }{}, err
		}
		asked <- struct{}{}
		return struct{ Answer int }{}, task.Defer("")
	}))
	worker, err := runner.New(runner.Config{Service: d.jobs, Submit: d.producer, Results: d.results, Logger: slog.New(slog.DiscardHandler)})
	must0(t, err)
	must0(t, runner.Dispatch(worker, job))
	made, err := d.jobs.Create(ctx, jobs.Spec{Name: "asking-job", Data: []byte(`{"N":3}`)})
	must0(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	select {
	case <-asked:
	case <-ctx.Done():
		t.Fatal("the task did not run")
	}
	if j, err := d.jobs.Query(ctx, made.ID); err != nil || j.State != jobs.Running {
		t.Fatalf("the job is %+v, %v", j, err)
	}
	if got, err := d.jobs.Complete(ctx, "asking-job", keyOf(3), map[string]int{"Answer": 42}); err != nil || got.Kind != jobs.Accepted {
		t.Fatalf("%+v, %v", got, err)
	}
	within(t, "the job is over", func() bool {
		_, err := d.jobs.Query(ctx, made.ID)
		return errors.Is(err, jobs.ErrNotFound)
	})
	stop()
	must0(t, <-ended)
}

// TestNothingIsLeftExpected shows that an attempt that needs no answer frees the key of the attempt
// before.
func TestNothingIsLeftExpected(t *testing.T) {
	d := newDeferring(t, nil, producer.Config{}, consumer.Config{})
	again := task.New[int, int]("again", task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(0))
	must0(t, again.Handle(d.consumer, func(ctx context.Context, n int) (int, error) {
		if req, ok := task.FromContext(ctx); ok && req.Retries > 0 {
			return n, nil
		}
		return 0, task.Defer("k")
	}))
	d.start()
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	for n := range 2 {
		f, err := again.Submit(ctx, d.producer, n)
		must0(t, err)
		within(t, "it waits", func() bool { s, err := f.State(ctx); return err == nil && s == task.StateAwaiting })
		if got, err := d.jobs.Reject(ctx, "again", "k", errors.New("no")); err != nil || got.Kind != jobs.Accepted {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := f.Get(ctx); err != nil || got != n {
			t.Fatalf("%d, %v", got, err)
		}
	}
}

// TestSealedReasonOfJob shows that the job of a task with conditions hides the reason of a failure
// if results are sealed.
func TestSealedReasonOfJob(t *testing.T) {
	ring := testRing(t, "k")
	d := newDeferring(t, nil, producer.Config{Wire: serializer.Wire{Sealer: ring}}, consumer.Config{Wire: serializer.Wire{Sealer: ring}})
	failing := task.New[int, int]("failing", task.WithSequenceKey("s"))
	must0(t, failing.Handle(d.consumer, func(context.Context, int) (int, error) { return 0, errors.New("the password is sesame") }))
	d.start()
	worker, err := runner.New(runner.Config{
		Service: d.jobs, Submit: d.producer, Results: d.results, Queue: &queue.Queue{Name: task.DefaultThrottle}, Logger: slog.New(slog.DiscardHandler),
	})
	must0(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), serverPatience)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	for n := range 5 { // the runner may be faster
		_, err := failing.Submit(ctx, d.producer, n)
		must0(t, err)
	}
	var found []jobs.Job
	within(t, "all have failed", func() bool {
		var err error
		found, err = d.jobs.List(ctx, jobs.Filter{Name: "failing", States: []jobs.State{jobs.Failed}})
		return err == nil && len(found) == 5
	})
	for i := range found {
		if !strings.Contains(found[i].Reason, "sealed") {
			t.Errorf("job %d says why: %s", found[i].ID, found[i].Reason)
		}
	}
	stop()
	must0(t, <-ended)
}

// TestDeferredRunsOnce shows that a task whose deferral is stored, but whose state cannot be
// recorded for an hour, runs once.
func TestDeferredRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err := jobs.New(jobs.Config{Store: store})
		must0(t, err)
		b := newTable(t, func(c *consumer.Config) {
			c.Deferrals = deferralsOf(t, service)
			c.Results = flakyStore{c.Results, time.Now().Add(time.Hour), resultstore.ErrUnavailable}
		})
		asked := 0
		must0(t, asking.Handle(b.c, func(context.Context, int) (int, error) { asked++; return 0, task.Defer("k") }))
		b.run()
		f, err := asking.Submit(t.Context(), b.p, 1)
		must0(t, err)
		time.Sleep(2 * time.Hour)
		if got, err := service.Complete(t.Context(), "asking", "k", 5); err != nil || got.Kind != jobs.Accepted {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := f.Get(t.Context()); err != nil || got != 5 || asked != 1 {
			t.Fatalf("%d, %v, asked %d times", got, err, asked)
		}
		b.end()
		must0(t, service.Close(t.Context()))
		must0(t, store.Close(t.Context()))
	})
}
