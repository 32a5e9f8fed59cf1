package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// waitTable is checkpointTable with a store of deferrals, whose service during gets.
func waitTable(t *testing.T, change func(*consumer.Config), fn func(ctx context.Context, attempt int) (string, error), during func(t *testing.T, b *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string])) {
	t.Helper()
	var memory *memjobs.Store
	var service *jobs.Service
	checkpointTable(t, func(c *consumer.Config) {
		var err error
		memory, err = memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err = jobs.New(jobs.Config{Store: memory})
		must0(t, err)
		c.Deferrals = deferralsOf(t, service)
		if change != nil {
			change(c)
		}
	}, fn, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		during(t, b, s, service, submit)
		must0(t, b.stop())
		b.stop = func() error { return nil }
		must0(t, service.Close(t.Context()))
		must0(t, memory.Close(t.Context()))
	})
}

// answer completes the wait of the task "walk" for key.
func answer(t *testing.T, s *jobs.Service, key string, v any, want jobs.ReceiptKind) {
	t.Helper()
	if got, err := s.Complete(context.Background(), "walk", key, v); err != nil || got.Kind != want {
		t.Errorf("the answer for %s: %+v, %v; want %s", key, got, err, want)
	}
}

// TestSleep shows that a task sleeps several times without a worker and without a retry. The first
// attempt reads nothing, and each sleep is one write.
func TestSleep(t *testing.T) {
	var woken []time.Duration
	var retries, generation int
	var began time.Time
	checkpointTable(t, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1}}
	}, func(ctx context.Context, _ int) (string, error) {
		r, _ := task.FromContext(ctx)
		retries, generation = r.Retries, r.Generation
		for i, d := range []time.Duration{time.Hour, 0, -time.Hour, 31 * 24 * time.Hour} {
			if err := task.Sleep(ctx, fmt.Sprint("sleep-", i), d); err != nil {
				return "", err
			}
			if len(woken) == i {
				woken = append(woken, time.Since(began))
			}
		}
		return "awake", nil
	}, func(t *testing.T, b *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		began = time.Now()
		f := submit()
		synctest.Wait()
		s.want(t, "a first attempt", "save sleep-0")
		b.get(b.submit(0)) // by the only worker
		ctx, cancel := context.WithTimeout(t.Context(), 50*24*time.Hour)
		defer cancel()
		if v, err := f.Get(ctx); v != "awake" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "two wakes", "load 1", "save sleep-1", "save sleep-2", "save sleep-3", "load 4")
		if fmt.Sprint(woken) != "[1h0m0s 1h0m0s 1h0m0s 745h0m0s]" || retries != 0 || generation != 2 {
			t.Errorf("woken at %v, %d retries, generation %d", woken, retries, generation)
		}
		if n := checkpointsOf(t, b, f.ID()); n != 0 {
			t.Errorf("%d checkpoints after the success", n)
		}
	})
}

// TestSleepEndsEarly shows that an attempt before the time sleeps for the rest, without a write. A
// retry after the wake does not sleep again.
func TestSleepEndsEarly(t *testing.T) {
	var starts []time.Duration
	var began time.Time
	checkpointTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
		starts = append(starts, time.Since(began))
		err := task.Sleep(ctx, "s", time.Hour)
		switch {
		case attempt == 1:
			return "", task.Retry(err, task.After(time.Minute)) // of another part of the handler
		case err != nil:
			return "", fmt.Errorf("not yet: %w", err)
		case attempt < 5:
			return "", task.Retry(nil)
		}
		return "awake", nil
	}, func(t *testing.T, _ *table, s *countingStore, submit func(...task.Option) *task.Future[string]) {
		began = time.Now()
		if v, err := get(t, submit()); v != "awake" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "five attempts", "save s", "load 1", "load 1", "load 1", "load 1")
		if fmt.Sprint(starts) != "[0s 1m0s 1h0m0s 1h0m1s 1h0m2s]" {
			t.Errorf("attempts at %v", starts)
		}
	})
}

// decision is an answer.
type decision struct {
	Yes bool
	By  string
}

// TestAwait shows that answers before, during and after the attempt continue the task, in one
// handler, with a sleep between them. A repeated answer changes nothing.
func TestAwait(t *testing.T) {
	var asked int
	var service *jobs.Service
	waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		first, err := task.Await[int](ctx, "first", "before")
		if err != nil {
			return "", err
		}
		if _, err := task.Checkpoint(ctx, "ask", counting(&asked, 1)); err != nil {
			return "", err
		}
		second, err := task.Await[string](ctx, "second", "during")
		if err != nil {
			if asked == 1 {
				asked++
				answer(t, service, "during", "two", jobs.Early)
			}
			return "", fmt.Errorf("second: %w", err)
		}
		if err := task.Sleep(ctx, "sleep", time.Hour); err != nil {
			return "", err
		}
		third, err := task.Await[decision](ctx, "third", "after", task.AnswerWithin(48*time.Hour))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(first, second, third), nil
	}, func(t *testing.T, b *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		service = answers
		answer(t, answers, "before", 1, jobs.Early)
		f := submit()
		time.Sleep(time.Minute)
		s.want(t, "two answers", "save first", "load 1", "save ask", "save second", "load 3", "save sleep")
		answer(t, answers, "during", "again", jobs.Duplicate)
		time.Sleep(time.Hour)
		if state, err := f.State(t.Context()); state != task.StateAwaiting || err != nil {
			t.Errorf("the task is %s, %v", state, err)
		}
		s.want(t, "a wake", "load 4")
		time.Sleep(47 * time.Hour)
		answer(t, answers, "after", decision{true, "the bank"}, jobs.Accepted)
		if v, err := get(t, f); v != "1two{true the bank}" && v != "1 two {true the bank}" || err != nil {
			t.Errorf("the task ended with %q, %v", v, err)
		}
		s.want(t, "the last answer", "save third", "load 5")
		answer(t, answers, "after", decision{}, jobs.Duplicate)
		if n := b.metrics.Retried.Count(); n != 0 || asked != 2 {
			t.Errorf("%d retries; asked %d times", n, asked-1)
		}
	})
}

// TestAwaitFails shows that a refusal and a missing answer are errors of Await, also in a retry. A
// requeue waits again.
func TestAwaitFails(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(t *testing.T, s *jobs.Service)
		want error
	}{
		"refusal": {func(t *testing.T, s *jobs.Service) {
			if got, err := s.Reject(t.Context(), "walk", "k", errors.New("no stock")); err != nil || got.Kind != jobs.Accepted {
				t.Errorf("%+v, %v", got, err)
			}
		}, task.ErrRejected},
		"timeout": {func(*testing.T, *jobs.Service) { time.Sleep(time.Hour) }, task.ErrAnswerTimeout},
	} {
		t.Run(what, func(t *testing.T) {
			var waits []error
			waitTable(t, nil, func(ctx context.Context, attempt int) (string, error) {
				v, err := task.Await[string](ctx, "a", "k", task.AnswerWithin(time.Hour))
				waits = append(waits, err)
				if attempt == 2 {
					return "", task.Retry(err)
				}
				return v, err
			}, func(t *testing.T, b *table, s *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
				f := submit(task.WithID("one"))
				synctest.Wait()
				c.end(t, answers)
				if _, err := get(t, f); !errors.Is(err, c.want) {
					t.Errorf("the task failed with %v", err)
				}
				if len(waits) != 3 || !errors.Is(waits[1], c.want) || !errors.Is(waits[2], c.want) {
					t.Errorf("Await returned %v", waits)
				}
				s.want(t, "a wait and a retry", "save a", "load 1", "load 1")
				if rep := b.requeueAll(t); rep.Done != 1 {
					t.Fatalf("requeue: %+v", rep)
				}
				synctest.Wait()
				answer(t, answers, "k", "now", jobs.Accepted)
				synctest.Wait()
				if rec := b.rec(t, f.ID()); rec.State != task.StateSucceeded {
					t.Errorf("after the requeue: %s, %v", rec.State, rec.Error)
				}
			})
		})
	}
}

// TestIgnoredWait shows that a handler that returns nil in spite of an error of Sleep or Await has
// failed for good.
func TestIgnoredWait(t *testing.T) {
	for what, wait := range map[string]func(ctx context.Context) error{
		"sleep": func(ctx context.Context) error { return task.Sleep(ctx, "ignored", time.Hour) },
		"await": func(ctx context.Context) error { return second(task.Await[int](ctx, "ignored", "k")) },
	} {
		waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
			if wait(ctx) == nil {
				t.Errorf("%s did not wait", what)
			}
			return "done", nil
		}, func(t *testing.T, _ *table, _ *countingStore, _ *jobs.Service, submit func(...task.Option) *task.Future[string]) {
			_, err := get(t, submit(task.WithRetry(task.RetryPolicy{})))
			if err == nil || !strings.Contains(err.Error(), `"ignored"`) || !errors.Is(err, task.ErrBadCheckpoint) {
				t.Errorf("%s: the task ended with %v", what, err)
			}
		})
	}
}

// TestWaitNames shows that a name is used once in an attempt, and that a value of another function
// is refused.
func TestWaitNames(t *testing.T) {
	waitTable(t, nil, func(ctx context.Context, _ int) (string, error) {
		must0(t, task.Sleep(ctx, "a", 0))
		must0(t, task.Save(ctx, "b", 1))
		for what, err := range map[string]error{
			"a sleep twice":           task.Sleep(ctx, "a", 0),
			"an await of a sleep":     second(task.Await[int](ctx, "a", "k")),
			"a sleep of a saved":      task.Sleep(ctx, "b", 0),
			"no name":                 task.Sleep(ctx, "", 0),
			"no name of an await":     second(task.Await[int](ctx, "", "k")),
			"the value of a sleep":    third(task.Load[int](ctx, "a")),
			"a checkpoint of a sleep": second(task.Checkpoint(ctx, "a", func(context.Context) (int, error) { return 1, nil })),
		} {
			if !errors.Is(err, task.ErrBadCheckpoint) {
				t.Errorf("%s: %v", what, err)
			}
		}
		return "", nil
	}, func(t *testing.T, _ *table, _ *countingStore, _ *jobs.Service, submit func(...task.Option) *task.Future[string]) {
		_, err := get(t, submit())
		must0(t, err)
	})
	renamed := map[int]func(ctx context.Context) error{
		1: func(ctx context.Context) error {
			return errors.Join(task.Sleep(ctx, "sleep", 0), task.Save(ctx, "saved", 1), second(task.Await[int](ctx, "answer", "k")))
		},
		2: func(ctx context.Context) error {
			for _, err := range []error{
				second(task.Await[int](ctx, "sleep", "k")), task.Sleep(ctx, "answer", 0),
				second(task.Await[int](ctx, "saved", "k")),
			} {
				if !errors.Is(err, task.ErrBadCheckpoint) {
					t.Errorf("the name of another function: %v", err)
				}
			}
			return task.Retry(nil)
		},
		3: func(ctx context.Context) error {
			if err := second(task.Await[[]string](ctx, "answer", "k")); !errors.Is(err, task.ErrBadCheckpoint) {
				t.Errorf("an answer of another type: %v", err)
			}
			return nil
		},
	}
	waitTable(t, nil, func(ctx context.Context, attempt int) (string, error) { return "", renamed[attempt](ctx) },
		func(t *testing.T, _ *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
			f := submit()
			synctest.Wait()
			answer(t, answers, "k", 1, jobs.Accepted)
			_, err := get(t, f)
			must0(t, err)
		})
}

// TestWaitsUnsupported shows that Sleep and Await refuse before they store anything, and name the
// reason.
func TestWaitsUnsupported(t *testing.T) {
	for _, c := range []struct {
		what         string
		change       func(*consumer.Config)
		opts         []task.Option
		sleep, await error
	}{
		{"no result", nil, []task.Option{task.WithIgnoreResult(true)}, resultstore.ErrUnsupported, resultstore.ErrUnsupported},
		{"no store", func(c *consumer.Config) { c.Results = nil }, nil, resultstore.ErrUnsupported, resultstore.ErrUnsupported},
		{"no deferrals", func(c *consumer.Config) { c.Deferrals = nil }, nil, nil, task.ErrNoAnswers},
	} {
		var kept context.Context
		waitTable(t, c.change, func(ctx context.Context, _ int) (string, error) {
			kept = ctx
			if err := task.Sleep(ctx, "s", 0); !errors.Is(err, c.sleep) {
				t.Errorf("%s: Sleep returned %v", c.what, err)
			}
			if err := second(task.Await[int](ctx, "a", "k")); !errors.Is(err, c.await) {
				t.Errorf("%s: Await returned %v", c.what, err)
			}
			return "", nil
		}, func(t *testing.T, _ *table, _ *countingStore, answers *jobs.Service, submit func(...task.Option) *task.Future[string]) {
			submit(c.opts...)
			synctest.Wait()
			answer(t, answers, "k", 1, jobs.Early)
			for _, ctx := range []context.Context{t.Context(), kept} {
				for _, err := range []error{task.Sleep(ctx, "a", 1), second(task.Await[int](ctx, "a", "k"))} {
					if !errors.Is(err, task.ErrNoCheckpoints) && !errors.Is(err, c.await) {
						t.Errorf("%s, outside of the handler: %v", c.what, err)
					}
				}
			}
		})
	}
}
