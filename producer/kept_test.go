package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// office is a producer that stores tasks with conditions as jobs in memory. Only send sends them.
type office struct {
	*testing.T
	*producer.Producer
	server  *membroker.Server
	store   *flakyStore
	jobs    *jobs.Service
	results resultstore.ResultStore
}

// flakyStore is a store of jobs that executes updates but loses their answers while mute is set.
type flakyStore struct {
	jobs.Store
	mute atomic.Bool
}

func (s *flakyStore) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	if err := s.Store.Update(ctx, fn); err != nil || !s.mute.Load() {
		return err
	}
	return fmt.Errorf("%w: no answer", jobs.ErrUnavailable)
}

func newOffice(t *testing.T, change ...func(*producer.Config)) *office {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	o := &office{T: t, server: membroker.NewServer(membroker.Config{}), store: &flakyStore{Store: store}, results: memresults.New(memresults.Config{})}
	if o.jobs, err = jobs.New(jobs.Config{Store: o.store}); err != nil {
		t.Fatal(err)
	}
	o.Producer = o.another(change...)
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(o.jobs.Close(ctx), o.store.Close(ctx), o.results.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return o
}

// another makes another producer.
func (o *office) another(change ...func(*producer.Config)) *producer.Producer {
	o.Helper()
	b := o.server.Connect()
	c := producer.Config{Broker: b, Results: o.results, Jobs: o.jobs}
	for _, f := range change {
		f(&c)
	}
	p := newProducer(o.T, c)
	o.Cleanup(func() {
		if err := errors.Join(p.Close(context.Background()), b.Close(context.Background())); err != nil {
			o.Error(err)
		}
	})
	return p
}

// consume runs tasks until the test ends.
func (o *office) consume(fn func(context.Context, int) (int, error), change ...func(*consumer.Config)) {
	o.Helper()
	b := o.server.Connect()
	config := consumer.Config{Broker: b, Results: o.results, Middleware: []middleware.Middleware{runner.Current(o.jobs)}}
	for _, f := range change {
		f(&config)
	}
	c, err := consumer.New(config)
	if err != nil {
		o.Fatal(err)
	}
	if err := number.Handle(c, fn); err != nil {
		o.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	o.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, b.Close(context.Background())); err != nil {
			o.Error(err)
		}
	})
}

// all returns the jobs in the order of their creation.
func (o *office) all() []jobs.Job {
	o.Helper()
	all, err := o.jobs.List(o.Context(), jobs.Filter{Name: "number"})
	if err != nil {
		o.Fatal(err)
	}
	return all
}

// message returns the message of a job.
func (o *office) message(id jobs.ID) (message []byte) {
	o.Helper()
	err := o.store.View(o.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		found, err := tx.Messages(ctx, id)
		message = found[id]
		return err
	})
	if err != nil {
		o.Fatal(err)
	}
	return message
}

// send does the work of a runner: it starts the job and sends its task through p.
func (o *office) send(p *producer.Producer, id jobs.ID) task.Pending {
	o.Helper()
	var data []byte
	err := o.store.Update(o.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		j, err := tx.Get(ctx, id)
		if err != nil {
			return err
		}
		messages, err := tx.Messages(ctx, id)
		if err != nil {
			return err
		}
		data = messages[id]
		j.State, j.Run, j.Token = jobs.Running, j.Run+1, j.Token+1
		return tx.Save(ctx, &j)
	})
	if err != nil {
		o.Fatal(err)
	}
	pending, err := p.SubmitPrepared(o.Context(), data)
	if err != nil {
		o.Fatal(err)
	}
	return pending
}

// over ends a job.
func (o *office) over(id jobs.ID) {
	o.Helper()
	if err := o.jobs.Finish(o.Context(), jobs.Finish{ID: id}); err != nil {
		o.Fatal(err)
	}
}

// get waits for a result.
func get[R any](t testing.TB, f *task.Future[R]) (R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return f.Get(ctx)
}

// waits returns how many tasks are in the broker.
func (o *office) waits() int {
	o.Helper()
	b := o.server.Connect()
	defer b.Close(context.Background())
	st, err := b.Stats(o.Context(), "default")
	if err != nil && !errors.Is(err, broker.ErrNoQueue) {
		o.Fatal(err)
	}
	return st.Ready + st.Held + st.Delayed
}

// TestConditionsBecomeAJob shows that the job has all conditions of the task, and that its message
// is the same as without conditions.
func TestConditionsBecomeAJob(t *testing.T) {
	o := newOffice(t)
	start := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	end := start.Add(time.Hour)
	f, err := number.Submit(t.Context(), o, 7, task.WithSequenceKey("s"), task.WithUniqueKey("u"), task.WithWeight(1.0005), task.WithThrottle("slow"), task.WithPriority(3),
		task.WithWindows("WINDOWS Europe/Berlin 09:00-17:00"), task.WithNotBefore(start), task.WithExpires(end), task.WithHeader("h", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := number.Submit(t.Context(), o, 8, task.WithThrottle("")); err != nil {
		t.Fatal(err)
	}
	all := o.all()
	if len(all) != 2 || o.waits() != 0 {
		t.Fatalf("%d jobs, and %d messages in the broker", len(all), o.waits())
	}
	j, plain := all[0], all[1]
	type told struct {
		State                                      jobs.State
		Queue, SequenceKey, UniqueKey, Key, Window string
		Weight                                     int64
		Priority                                   int
		Timeout                                    time.Duration
	}
	of := func(j jobs.Job) told {
		return told{j.State, j.Queue, j.SequenceKey, j.UniqueKey, j.Key, j.Window, j.Weight, j.Priority, j.Timeout}
	}
	want := told{jobs.Queued, "slow", "s", "u", jobs.KeyOfTask(f.ID()), "WINDOWS Europe/Berlin 09:00-17:00", 1001, 3, 0}
	if d := cmp.Diff(want, of(j)); d != "" {
		t.Errorf("the job (-want +got):\n%s", d)
	}
	if j.NextRun.Before(start) {
		t.Errorf("it runs at %v, asked for was %v", j.NextRun, start)
	}
	id, _ := jobs.TaskOf(&plain)
	if d := cmp.Diff(told{jobs.Queued, task.DefaultThrottle, "", "", jobs.KeyOfTask(id), "", 1000, jobs.DefaultPriority, 0}, of(plain)); d != "" {
		t.Errorf("a job of which little was said (-want +got):\n%s", d)
	}

	queue, m, err := wire.ReadPrepared(o.message(j.ID))
	if err != nil {
		t.Fatal(err)
	}
	if queue != "default" || m.ID != string(f.ID()) || m.Generation != 0 || m.Priority != 3 || !m.Expires.IsZero() {
		t.Errorf("the message is %+v, for queue %q", m, queue)
	}
	codec, err := wire.New(serializer.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := codec.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	if e.Headers["h"] != "x" || e.Headers[task.HeaderConditions] != string(f.ID()) || !e.Meta.Expires.Or(time.Time{}).Equal(end) || e.Meta.ResultTTL.Or(0) != 48*time.Hour {
		t.Errorf("the task is %+v", e)
	}
}

// TestKeptTaskRuns shows that any producer can send the task and that its future works as usual.
// The task runs once for each time it is sent before its end.
func TestKeptTaskRuns(t *testing.T) {
	o := newOffice(t)
	other := o.another()
	ran := atomic.Int64{}
	o.consume(func(_ context.Context, n int) (int, error) { ran.Add(1); return n + 1, nil })
	first, err := number.Submit(t.Context(), o, 1, task.WithThrottle("q"))
	if err != nil {
		t.Fatal(err)
	}
	if state, err := first.State(t.Context()); err != nil || state != task.StatePending {
		t.Errorf("before it is sent it is %s, %v", state, err)
	}
	job := o.all()[0]
	message := o.message(job.ID)
	dispatched := o.send(other, job.ID)
	if got, err := get(t, first); got != 2 || err != nil {
		t.Errorf("the submitter got %d, %v", got, err)
	}
	var result int
	if err := dispatched.Result(t.Context(), &result); result != 2 || err != nil || dispatched.ID() != first.ID() {
		t.Errorf("who has sent task %s of %s got %d, %v", dispatched.ID(), first.ID(), result, err)
	}
	o.over(job.ID)
	// If it is sent again after its end, as after a lost confirm, it does not run.
	again, err := other.SubmitPrepared(t.Context(), message)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Result(t.Context(), &result); result != 2 || err != nil {
		t.Errorf("sent again: %d, %v", result, err)
	}
	for deadline := time.Now().Add(20 * time.Second); o.waits() > 0 && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	if n := ran.Load(); n != 1 || o.waits() != 0 {
		t.Errorf("it ran %d times, and %d messages are left", n, o.waits())
	}
}

// TestConsumerEndsJob shows that a consumer with Config.Jobs ends the job of a task when the task
// has ended, after its retries, and no other job.
func TestConsumerEndsJob(t *testing.T) {
	o := newOffice(t)
	attempts := atomic.Int64{}
	o.consume(func(_ context.Context, n int) (int, error) {
		switch {
		case n == 1:
			return n, nil
		case attempts.Add(1) == 1:
			if all := o.all(); all[1].State != jobs.Running {
				t.Errorf("while its task runs the job is %s", all[1].State)
			}
			return 0, task.Retry(errors.New("not yet"), task.After(0))
		}
		return 0, errors.New("no luck")
	}, func(c *consumer.Config) { c.Jobs = o.jobs })
	for i, want := range []jobs.State{jobs.Finished, jobs.Failed} {
		if _, err := number.Submit(t.Context(), o, i+1, task.WithThrottle("q")); err != nil {
			t.Fatal(err)
		}
		o.send(o.Producer, o.all()[i].ID)
		for deadline := time.Now().Add(20 * time.Second); !o.all()[i].State.Over() && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
		if j := o.all()[i]; j.State != want || want == jobs.Failed && j.Reason != "no luck" {
			t.Errorf("task %d: the job is %s, %q", i+1, j.State, j.Reason)
		}
	}
	if n := attempts.Load(); n != 2 {
		t.Errorf("%d attempts", n)
	}
}

// TestExpiredKeptTask shows that an expired task is sent too and ends as expired: only the consumer
// handles that.
func TestExpiredKeptTask(t *testing.T) {
	o := newOffice(t)
	ran := atomic.Int64{}
	o.consume(func(_ context.Context, n int) (int, error) { ran.Add(1); return n, nil })
	f, err := number.Submit(t.Context(), o, 1, task.WithThrottle("q"), task.WithExpires(time.Now().Add(-time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	o.send(o.Producer, o.all()[0].ID)
	if _, err := get(t, f); !errors.Is(err, task.ErrExpired) || ran.Load() != 0 {
		t.Errorf("%v; it ran %d times", err, ran.Load())
	}
	if rec, err := o.results.Load(t.Context(), f.ID()); err != nil || rec.State != task.StateExpired {
		t.Errorf("its record says %s, %v", rec.State, err)
	}
}

// TestWaitForConditions shows that the error of a wait for a task with conditions names the command
// that explains them.
func TestWaitForConditions(t *testing.T) {
	o := newOffice(t)
	f, err := number.Submit(t.Context(), o, 1, task.WithThrottle("q"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Get(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "its job may wait (swarmiji job ls --task, swarmiji job why)") {
		t.Errorf("got %v", err)
	}
}

// TestUniqueKey shows that a second task of a key is refused until the first has ended, and that
// the error names the first.
func TestUniqueKey(t *testing.T) {
	o := newOffice(t)
	unique := number.With(task.WithUniqueKey("k"))
	first, err := unique.Submit(t.Context(), o, 1)
	if err != nil {
		t.Fatal(err)
	}
	held := o.all()[0]
	refused := func(when string) {
		t.Helper()
		_, err := unique.Submit(t.Context(), o, 2)
		var taken *task.TakenError
		if !errors.Is(err, jobs.ErrKeyTaken) || !errors.As(err, &taken) || taken.Key != "k" || taken.Job != fmt.Sprint(held.ID) || taken.Task != first.ID() {
			t.Fatalf("%s: %v", when, err)
		}
		if text := err.Error(); !strings.Contains(text, string(first.ID())) || !strings.Contains(text, fmt.Sprint("job ", held.ID)) || strings.Contains(text, "of the call") {
			t.Errorf("%s: the text %q does not name job and task, or names an index of an internal call", when, text)
		}
	}
	refused("while it waits")
	if _, err := number.Submit(t.Context(), o, 2, task.WithUniqueKey("other")); err != nil {
		t.Error(err)
	}
	if _, err := task.New[int, int]("other").Submit(t.Context(), o, 2, task.WithUniqueKey("k")); err != nil {
		t.Error("a key belongs to the tasks of a name:", err)
	}
	o.consume(func(_ context.Context, n int) (int, error) { return n, nil })
	o.send(o.Producer, held.ID)
	if _, err := get(t, first); err != nil {
		t.Fatal(err)
	}
	refused("when it has run, and its job has not heard of that")
	o.over(held.ID)
	if _, err := unique.Submit(t.Context(), o, 2); err != nil {
		t.Error("when it is over:", err)
	}
}

// TestKeptOnce shows that one id is one job, however often and whenever it is submitted.
func TestKeptOnce(t *testing.T) {
	for name, opts := range map[string][]task.Option{
		"plain":  {task.WithThrottle("q"), task.WithID("one")},
		"unique": {task.WithUniqueKey("k"), task.WithID("one")},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			o.store.mute.Store(true)
			if _, err := number.Submit(t.Context(), o, 1, opts...); !errors.Is(err, broker.ErrIndeterminate) || !errors.Is(err, jobs.ErrUnavailable) {
				t.Fatalf("a store that does not answer: %v", err)
			}
			o.store.mute.Store(false)
			submit := func(p *producer.Producer) *task.Future[int] {
				t.Helper()
				f, err := number.Submit(t.Context(), p, 1, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if n := len(o.all()); n != 1 {
					t.Fatalf("%d jobs", n)
				}
				return f
			}
			f := submit(o.Producer)
			submit(o.another())
			o.consume(func(_ context.Context, n int) (int, error) { return n + 1, nil })
			o.send(o.Producer, o.all()[0].ID)
			if got, err := get(t, f); got != 2 || err != nil {
				t.Fatalf("%d, %v", got, err)
			}
			submit(o.Producer)
			o.over(o.all()[0].ID)
			if got, err := get(t, submit(o.Producer)); got != 2 || err != nil {
				t.Errorf("submitted once more when it was over: %d, %v", got, err)
			}
			if batch, err := number.SubmitAll(t.Context(), o, []int{1}, opts...); err != nil || len(batch) != 1 || len(o.all()) != 1 {
				t.Errorf("in a batch: %v, %d jobs", err, len(o.all()))
			}
		})
	}
}

// TestBatchOfMixedTasks shows that tasks without conditions go to the broker and the others become
// jobs in order. Each refused task has its own error.
func TestBatchOfMixedTasks(t *testing.T) {
	o := newOffice(t)
	const n = 40
	calls := make([]task.Call, 0, n)
	var wantJobs, wantRefused []int
	for i := range n {
		switch {
		case i%4 == 0:
			calls = append(calls, number.Call(i))
			continue
		case i == 7 || i == 30 || i == 31: // the first task has the key
			calls = append(calls, number.Call(i, task.WithUniqueKey("k")))
			if i > 7 {
				wantRefused = append(wantRefused, i)
				continue
			}
		case i == 13:
			calls = append(calls, number.Call(i, task.WithSequenceKey(strings.Repeat("x", 300))))
			wantRefused = append(wantRefused, i)
			continue
		case i == 17:
			calls = append(calls, number.Call(i, task.WithWindows("noon")))
			wantRefused = append(wantRefused, i)
			continue
		default:
			calls = append(calls, number.Call(i, task.WithSequenceKey("s")))
		}
		wantJobs = append(wantJobs, i)
	}
	pending, err := o.SubmitAll(t.Context(), calls)
	var batch *broker.BatchError
	if !errors.As(err, &batch) || len(pending) != n {
		t.Fatalf("%d handles, %v", len(pending), err)
	}
	var refused []int
	for i, err := range batch.Errs {
		if (err == nil) == (pending[i] == nil) {
			t.Errorf("task %d: handle %v, %v", i, pending[i], err)
		}
		if err == nil {
			continue
		}
		refused = append(refused, i)
		if want := jobs.ErrKeyTaken; i >= 30 && !errors.Is(err, want) || i < 30 && !errors.Is(err, task.ErrBadMetadata) {
			t.Errorf("task %d: %v", i, err)
		}
	}
	if d := cmp.Diff(wantRefused, refused); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
	var ids, want []task.ID
	for _, j := range o.all() {
		id, _ := jobs.TaskOf(&j)
		ids = append(ids, id)
	}
	for _, i := range wantJobs {
		want = append(want, pending[i].ID())
	}
	if d := cmp.Diff(want, ids); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	if got := o.waits(); got != n/4 {
		t.Errorf("%d tasks went to the broker", got)
	}
}

// TestConditionsCheck shows that a task that cannot become a job is refused before anything is
// sent.
func TestConditionsCheck(t *testing.T) {
	o := newOffice(t, func(c *producer.Config) { c.Stores = map[string]resultstore.ResultStore{"other": c.Results} })
	for name, c := range map[string]struct {
		opts []task.Option
		want error
	}{
		"at most once":       {[]task.Option{task.WithIdempotent(false)}, broker.ErrUnsupported},
		"ignored":            {[]task.Option{task.WithIgnoreResult(true)}, task.ErrBadMetadata},
		"another store":      {[]task.Option{task.WithResultStore("other")}, broker.ErrUnsupported},
		"windows":            {[]task.Option{task.WithWindows("sometimes")}, task.ErrBadMetadata},
		"weight":             {[]task.Option{task.WithWeight(-1)}, task.ErrBadMetadata},
		"a long unique key":  {[]task.Option{task.WithUniqueKey(strings.Repeat("x", 600))}, task.ErrBadMetadata},
		"a queue's bad name": {[]task.Option{task.WithQueue("a b")}, task.ErrBadName},
	} {
		if _, err := number.Submit(t.Context(), o, 1, append(slices.Clone(c.opts), task.WithSequenceKey("s"))...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := task.New[string, int]("number", task.WithThrottle("q"))
	if _, err := large.Submit(t.Context(), o, strings.Repeat("x", 790_000)); !errors.Is(err, broker.ErrTooLarge) {
		t.Errorf("a message that fits into a broker and not into a job: %v", err)
	}
	if n := len(o.all()); n != 0 {
		t.Errorf("%d jobs were made", n)
	}
	if _, err := producer.New(producer.Config{Broker: o.server.Connect(), Jobs: o.jobs, Results: replies{}}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("results that nobody can look up: %v", err)
	}
}

// TestSubmitPreparedRefuses shows that data of other jobs are refused, and that an error of the
// broker is returned.
func TestSubmitPreparedRefuses(t *testing.T) {
	o := newOffice(t)
	if _, err := o.SubmitPrepared(t.Context(), []byte(`{"n":1}`)); !errors.Is(err, task.ErrBadArgs) {
		t.Errorf("another job's data: %v", err)
	}
	nowhere, err := wire.Prepare("nowhere", &broker.Message{ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.SubmitPrepared(t.Context(), nowhere); !errors.Is(err, broker.ErrNoQueue) {
		t.Errorf("a queue that is not there: %v", err)
	}
	if err := o.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.SubmitPrepared(t.Context(), nowhere); !errors.Is(err, producer.ErrClosed) {
		t.Errorf("a closed producer: %v", err)
	}
}

// TestMiddlewareOfKeptTask shows that middleware sees the submission and may change the task. The
// sender of the task calls no middleware.
func TestMiddlewareOfKeptTask(t *testing.T) {
	var sent []string
	o := newOffice(t, func(c *producer.Config) {
		c.Middleware = []middleware.SendMiddleware{func(next middleware.Sender) middleware.Sender {
			return func(ctx context.Context, queue string, e *task.Envelope) error {
				if confirm, ok := middleware.ConfirmerFrom(ctx); ok {
					confirm.OnConfirm(func(err error) { sent = append(sent, fmt.Sprint(e.Name, " ", err)) })
				}
				changed := *e
				changed.ID, changed.Headers = "changed", map[string]string{"own": "1"}
				return next(ctx, queue, &changed)
			}
		}}
	})
	if _, err := number.Submit(t.Context(), o, 1, task.WithThrottle("q")); err != nil {
		t.Fatal(err)
	}
	j := o.all()[0]
	if id, ok := jobs.TaskOf(&j); !ok || id != "changed" {
		t.Errorf("the job is that of task %q", id)
	}
	if p := o.send(o.Producer, j.ID); p.ID() != "changed" {
		t.Errorf("task %q was sent", p.ID())
	}
	if d := cmp.Diff([]string{"number <nil>"}, sent); d != "" {
		t.Errorf("middleware heard (-want +got):\n%s", d)
	}
}
