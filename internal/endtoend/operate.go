package endtoend

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// testRetriedGroup: two members of a group fail, and the steps behind it are skipped. After the
// repair a retry runs only the two members and the skipped steps, each once.
func testRetriedGroup(t *testing.T, open Open) {
	var gatherer resultstore.Gatherer
	r := newWorks(t, open, func(p *producer.Config, _ *consumer.Config) { gatherer = p.Gatherer })
	shaky := task.New[int, int]("shaky")
	var broken atomic.Bool
	broken.Store(true)
	var mu sync.Mutex
	ran := make(map[int]int)
	handle(r, shaky, func(_ context.Context, i int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if ran[i]++; broken.Load() && i > 2 {
			return 0, errBroken
		}
		return i, nil
	})
	final := make(chan int, 2)
	end := task.New[int, int]("end")
	handle(r, end, func(_ context.Context, i int) (int, error) { final <- i; return i, nil })
	r.start()
	run := submitWork(r, task.Chain3(task.Map(shaky), sum, end), []int{1, 2, 3, 4})
	if e := failure(r, run.Future, nil); e.Message != errBroken.Error() || e.Step != "shaky" {
		t.Fatalf("the workflow failed with %+v", e)
	}
	r.eventually("both members have failed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ran[3] > 0 && ran[4] > 0
	})
	broken.Store(false)
	results := r.h.Results(t)
	defer func() { _ = results.Close(context.Background()) }()
	l, err := deadletter.New(deadletter.Config{Broker: r.broker, Results: results, Gatherer: gatherer})
	if err != nil {
		t.Fatal(err)
	}
	r.eventually("both members are requeued", func() bool {
		report, err := l.Retry(r.ctx(), run.ID(), queueName)
		if err != nil && !errors.Is(err, deadletter.ErrNoRetry) {
			t.Fatalf("retry: %v", err)
		}
		if report.Done == 1 {
			t.Fatalf("only one of two members was requeued: %+v", report)
		}
		return report.Done == 2
	})
	r.wantElsewhere(run.ID(), 10)
	select {
	case n := <-final:
		if n != 10 {
			t.Errorf("the last step got %d, want 10", n)
		}
	case <-r.ctx().Done():
		t.Fatal("the last step did not run")
	}
	mu.Lock()
	defer mu.Unlock()
	if ran[1] != 1 || ran[2] != 1 || ran[3] != 2 || ran[4] != 2 {
		t.Errorf("runs of the members: %v", ran)
	}
	if _, err := l.Retry(r.ctx(), run.ID(), queueName); !errors.Is(err, deadletter.ErrNoRetry) {
		t.Errorf("a second retry: %v", err)
	}
}

// testProgress shows that the progress of a running task can be read by its id. After its end the
// future shows the last value, which came too soon to be sent.
func testProgress(t *testing.T, open Open) {
	r := newRoad(t, open)
	release := make(chan struct{})
	handle(r, work, func(ctx context.Context, n int) (int, error) {
		task.Progress(ctx, 3, n, "rows")
		<-release
		task.Progress(ctx, n, n, "all rows")
		return n, nil
	})
	r.start()
	const id = "progress"
	submitted := make(chan *task.Future[int], 1)
	// a broker that runs the task at once returns late
	go func() { submitted <- submit(r, work, 10, task.WithID(id)) }()
	shows := func(p task.ProgressValue, done int, note string) bool {
		return p.Done == done && p.Total == 10 && p.Note == note && !p.At.IsZero()
	}
	if !resultstore.RepliesOnly(r.results) {
		r.eventually("the progress is shown", func() bool {
			p, err := task.FutureOf[int](r.producer.Pending(id)).Progress(r.ctx())
			return err == nil && shows(p, 3, "rows")
		})
	}
	close(release)
	f := <-submitted
	want(r, f, 10)
	if p, err := f.Progress(r.ctx()); err != nil || !shows(p, 10, "all rows") {
		t.Errorf("after the end: %+v, %v", p, err)
	}
}

// testWorkflowTimeLimit: a step that comes after the time limit of the workflow does not start. Its
// error task runs.
func testWorkflowTimeLimit(t *testing.T, open Open) {
	r := newWorks(t, open)
	slow, late := task.New[int, int]("slow"), task.New[int, int]("late")
	handle(r, slow, func(ctx context.Context, limit int) (int, error) {
		ctx, cancel := context.WithDeadline(ctx, time.UnixMilli(int64(limit)+50))
		defer cancel()
		<-ctx.Done()
		return limit, nil
	})
	handle(r, late, func(context.Context, int) (int, error) { t.Error("a step started after the limit"); return 0, nil })
	alarm, failures := task.New[task.Failure, int]("alarm"), make(chan task.Failure, 1)
	handle(r, alarm, func(_ context.Context, f task.Failure) (int, error) { failures <- f; return 0, nil })
	r.start()
	flow := task.Chain3(slow, task.OnError(late, alarm), inc)
	for within := 300 * time.Millisecond; ; within *= 4 { // the first step may start late
		limit := time.Now().Add(within)
		run, err := flow.Submit(r.ctx(), r.producer, int(limit.UnixMilli()), task.WithExpires(limit))
		if err != nil {
			t.Fatal(err)
		}
		e := failure(r, run.Future, task.ErrExpired)
		if e.Step == "slow" && within < time.Minute {
			continue
		}
		if e.Step != "late" {
			t.Errorf("the workflow ended with %+v", e)
		}
		break
	}
	select {
	case <-failures:
	case <-r.ctx().Done():
		t.Error("the error task did not run")
	}
}
