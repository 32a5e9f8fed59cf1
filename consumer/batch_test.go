package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// rows are the tasks of these tests. Each has a number as its argument, and returns its double.
var rows = task.New[int, int]("rows", task.WithRetryDelay(time.Minute), task.WithMaxRetries(2))

type (
	rowItem = task.BatchItem[int, int]
	batchFn = func(ctx context.Context, batch []*rowItem) error
)

// calls notes the calls of a batch handler: the time since the first note, and the arguments.
type calls struct {
	mu    sync.Mutex
	began time.Time
	all   []string
}

func (c *calls) note(batch []*rowItem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	args := make([]int, len(batch))
	for i, item := range batch {
		args[i] = item.Args
	}
	slices.Sort(args)
	c.all = append(c.all, fmt.Sprint(time.Since(c.began), args))
}

// sorted returns the notes, those of one time in the order of their texts.
func (c *calls) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.all)
	slices.SortStableFunc(all, func(a, b string) int {
		ta, _ := time.ParseDuration(strings.Fields(a)[0])
		tb, _ := time.ParseDuration(strings.Fields(b)[0])
		if ta != tb {
			return int(ta - tb)
		}
		return strings.Compare(a, b)
	})
	return all
}

func double(batch []*rowItem) error {
	for _, item := range batch {
		item.Return(2*item.Args, nil)
	}
	return nil
}

// batchSwarm starts a consumer of rows in s. change may change its configuration.
func batchSwarm(t *testing.T, s *tasktest.Swarm, workers int, o task.BatchOptions, fn batchFn, change func(*consumer.Config)) (*tasktest.Consumer, *calls) {
	t.Helper()
	noted := &calls{began: time.Now()}
	cfg := consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: workers}}}
	if change != nil {
		change(&cfg)
	}
	return s.Start(cfg, func(r task.Registrar) error {
		return rows.HandleBatch(r, o, func(ctx context.Context, batch []*rowItem) error {
			noted.note(batch)
			return fn(ctx, batch)
		})
	}), noted
}

func submitRows(t *testing.T, s *tasktest.Swarm, from, to int, opts ...task.Option) []*task.Future[int] {
	t.Helper()
	var futures []*task.Future[int]
	for i := from; i <= to; i++ {
		f, err := rows.Submit(t.Context(), s, i, append([]task.Option{task.WithID(task.ID(fmt.Sprint("row-", i)))}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	return futures
}

func wantCalls(t *testing.T, c *calls, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.sorted()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestBatchSizes shows that a full batch is called at once, and another one after Wait. Each task
// has its own result.
func TestBatchSizes(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		_, noted := batchSwarm(t, s, 8, task.BatchOptions{Max: 3, Wait: time.Second}, func(_ context.Context, batch []*rowItem) error { return double(batch) }, nil)
		futures := submitRows(t, s, 1, 2)
		s.Advance(400 * time.Millisecond)
		futures = append(futures, submitRows(t, s, 3, 3)...)
		synctest.Wait()
		futures = append(futures, submitRows(t, s, 4, 4)...)
		s.Advance(time.Minute)
		for i, f := range futures {
			if got, err := f.Get(t.Context()); err != nil || got != 2*(i+1) {
				t.Errorf("task %d: %d, %v", i+1, got, err)
			}
		}
		wantCalls(t, noted, "400ms [1 2 3]", "1.4s [4]")
	})
}

// TestBatchOutcomes has the outcome of each task for each way in which a batch handler can end. The
// odd tasks are the bad ones.
func TestBatchOutcomes(t *testing.T) {
	bad := errors.New("bad")
	returns := func(odd error) batchFn {
		return func(_ context.Context, batch []*rowItem) error {
			for _, item := range batch {
				if item.Args%2 == 1 {
					item.Return(0, odd)
				} else {
					item.Return(2*item.Args, nil)
				}
			}
			return nil
		}
	}
	// fails calls Return for the even tasks, then ends; in a call of its own a task succeeds.
	fails := func(end func() error) batchFn {
		return func(_ context.Context, batch []*rowItem) error {
			if len(batch) == 1 {
				return double(batch)
			}
			_ = returns(task.Fail(bad))(nil, smallest(batch, 2))
			return end()
		}
	}
	alone := []string{"1m0s [1]", "1m0s [2]", "1m0s [3]", "1m0s [4]"}
	for name, c := range map[string]struct {
		fn    batchFn
		opts  []task.Option
		calls []string // after the first
		want  string   // results or errors of the tasks 1 to 4
	}{
		"an error fails its task alone":      {fn: returns(bad), want: "bad 4 bad 8"},
		"a retry runs its task alone":        {fn: returns(task.Retry(bad)), calls: []string{"1m0s [1]", "1m0s [3]", "2m0s [1]", "2m0s [3]"}, want: "bad 4 bad 8"},
		"a snoozed task joins a batch again": {fn: snoozeOnce(), calls: []string{"1m0s [1 2 3 4]"}, want: "2 4 6 8"},
		"no verdict": {fn: func(_ context.Context, batch []*rowItem) error {
			if len(batch) == 1 {
				return double(batch)
			}
			return double(smallest(batch, 2))
		}, calls: []string{"1m0s [3]", "1m0s [4]"}, want: "2 4 6 8"},
		"never a verdict": {
			fn: func(context.Context, []*rowItem) error { return nil }, opts: []task.Option{task.WithMaxRetries(0)},
			want: strings.Repeat(task.ErrNoVerdict.Error()+" ", 4),
		},
		"no verdict, at most once": {
			fn: func(_ context.Context, batch []*rowItem) error { return double(smallest(batch, 2)) }, opts: []task.Option{task.WithIdempotent(false)},
			want: "2 4 " + strings.Repeat(task.ErrNoVerdict.Error()+" ", 2),
		},
		"an error of the call": {fn: fails(func() error { return errors.New("over") }), calls: alone[1:], want: "bad 4 6 8"},
		"a panic":              {fn: fails(func() error { panic("boom") }), calls: alone[1:], want: "bad 4 6 8"},
		"the end of its goroutine": {fn: fails(func() error {
			runtime.Goexit()
			return nil
		}), calls: alone[1:], want: "bad 4 6 8"},
		"a verdict for the call": {fn: fails(func() error { return task.Fail(errors.New("over")) }), want: "bad over over over"},
		"an error of the call, at most once": {
			fn: fails(func() error { return errors.New("over") }), opts: []task.Option{task.WithIdempotent(false)}, want: "bad over over over",
		},
		"an error that the policy retries": {
			fn: fails(func() error { return errors.New("over") }), opts: []task.Option{task.WithRetry(task.RetryPolicy{Backoff: task.Backoff{Strategy: task.BackoffConstant, Base: time.Hour, Max: time.Hour}})},
			calls: []string{"1h0m0s [2]", "1h0m0s [3]", "1h0m0s [4]"}, want: "bad 4 6 8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				_, noted := batchSwarm(t, s, 4, task.BatchOptions{Max: 4, Wait: time.Hour}, c.fn, nil)
				futures := submitRows(t, s, 1, 4, c.opts...)
				s.DrainAll()
				wantCalls(t, noted, append([]string{"0s [1 2 3 4]"}, c.calls...)...)
				var got []string
				for _, f := range futures {
					if r, err := f.Get(t.Context()); err != nil {
						got = append(got, err.Error())
					} else {
						got = append(got, fmt.Sprint(r))
					}
				}
				if want := strings.TrimSpace(c.want); strings.Join(got, " ") != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// smallest returns the n items with the smallest arguments. Tasks join a batch in any order.
func smallest(batch []*rowItem, n int) []*rowItem {
	slices.SortFunc(batch, func(a, b *rowItem) int { return a.Args - b.Args })
	return batch[:n]
}

// snoozeOnce returns a handler whose first call snoozes its tasks.
func snoozeOnce() batchFn {
	var snoozed atomic.Bool
	return func(_ context.Context, batch []*rowItem) error {
		if !snoozed.Swap(true) {
			return task.Snooze(time.Minute)
		}
		return double(batch)
	}
}

// TestBatchCannotGrow shows that a batch does not wait when no further task can join it: all
// workers wait, the queue is paused or removed, or the consumer stops.
func TestBatchCannotGrow(t *testing.T) {
	other := task.New[int, int]("other")
	for name, c := range map[string]struct {
		do    func(t *testing.T, s *tasktest.Swarm, c *tasktest.Consumer)
		calls []string
	}{
		"scaled down": {func(t *testing.T, s *tasktest.Swarm, c *tasktest.Consumer) {
			s.Advance(time.Second)
			if err := c.Scale("default", 2); err != nil {
				t.Error(err)
			}
			s.Advance(time.Second)
			submitRows(t, s, 3, 6)
		}, []string{"1s [1 2]", "2s [3 4]", "2s [5 6]"}},
		"another task takes the workers": {func(t *testing.T, s *tasktest.Swarm, _ *tasktest.Consumer) {
			for i := range 6 {
				if _, err := other.Submit(t.Context(), s, i); err != nil {
					t.Error(err)
				}
			}
		}, []string{"0s [1 2]"}},
		"a pause": {func(t *testing.T, s *tasktest.Swarm, c *tasktest.Consumer) {
			s.Advance(time.Second)
			if err := c.Pause("default"); err != nil {
				t.Error(err)
			}
		}, []string{"1s [1 2]"}},
		"the end of the queue": {func(t *testing.T, s *tasktest.Swarm, c *tasktest.Consumer) {
			s.Advance(time.Second)
			if err := c.RemoveQueue(t.Context(), "default"); err != nil {
				t.Error(err)
			}
		}, []string{"1s [1 2]"}},
		"a stop": {func(_ *testing.T, s *tasktest.Swarm, c *tasktest.Consumer) {
			s.Advance(time.Second)
			c.Stop()
		}, []string{"1s [1 2]"}},
		"time": {func(_ *testing.T, s *tasktest.Swarm, _ *tasktest.Consumer) { s.Advance(2 * time.Hour) }, []string{"1h0m0s [1 2]"}},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				noted := &calls{began: time.Now()}
				on := s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"default": {Workers: 8}}}, func(r task.Registrar) error {
					return errors.Join(
						rows.HandleBatch(r, task.BatchOptions{Max: 8, Wait: time.Hour}, func(_ context.Context, batch []*rowItem) error {
							noted.note(batch)
							return double(batch)
						}),
						other.HandleBatch(r, task.BatchOptions{Max: 8, Wait: time.Hour}, func(_ context.Context, batch []*rowItem) error { return double(batch) }))
				})
				futures := submitRows(t, s, 1, 2)
				synctest.Wait()
				c.do(t, s, on)
				synctest.Wait()
				wantCalls(t, noted, c.calls...)
				for _, f := range futures {
					if _, err := f.Get(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestBatchLeaves shows that a task whose context ends while it waits leaves its batch. If its
// context ends during the call, the others are not disturbed.
func TestBatchLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		before time.Duration // from the submission to the end of the second task
		opts   []task.Option // of the second task
		end    func(t *testing.T, s *tasktest.Swarm)
		want   error
		calls  []string
	}{
		"revoked while it waits":    {time.Second, nil, revokeSecond, task.ErrRevoked, []string{"10s [1 3]"}},
		"revoked during the call":   {12 * time.Second, nil, revokeSecond, task.ErrRevoked, []string{"10s [1 2 3]"}},
		"a soft limit of its own":   {0, []task.Option{task.WithSoftTimeLimit(14 * time.Second)}, nil, task.ErrSoftTimeLimit, []string{"7s [1 2 3]"}},
		"a hard limit in the call":  {0, []task.Option{task.WithTimeLimit(14 * time.Second)}, nil, task.ErrTimeLimit, []string{"7s [1 2 3]"}},
		"a limit beyond the call":   {0, []task.Option{task.WithTimeLimit(time.Hour)}, nil, nil, []string{"10s [1 2 3]"}},
		"both limits, a short soft": {0, []task.Option{task.WithTimeLimit(time.Hour), task.WithSoftTimeLimit(4 * time.Second)}, nil, task.ErrSoftTimeLimit, []string{"2s [1 2 3]"}},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				_, noted := batchSwarm(t, s, 8, task.BatchOptions{Max: 8, Wait: 10 * time.Second}, func(ctx context.Context, batch []*rowItem) error {
					select {
					case <-time.After(10 * time.Second):
					case <-ctx.Done():
						t.Errorf("the context of the call ended: %v", context.Cause(ctx))
					}
					for _, item := range batch {
						if err := context.Cause(item.Context()); err != nil {
							item.Return(0, err)
						} else {
							item.Return(2*item.Args, nil)
						}
					}
					return nil
				}, nil)
				first := submitRows(t, s, 1, 1)[0]
				second := submitRows(t, s, 2, 2, c.opts...)[0]
				third := submitRows(t, s, 3, 3)[0]
				s.Advance(c.before)
				if c.end != nil {
					c.end(t, s)
				}
				s.DrainAll()
				wantCalls(t, noted, c.calls...)
				if got, err := second.Get(t.Context()); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("the second task: %d, %v; want %v", got, err, c.want)
				}
				for i, f := range []*task.Future[int]{first, third} {
					if got, err := f.Get(t.Context()); err != nil || got != 2+4*i {
						t.Errorf("another task: %d, %v", got, err)
					}
				}
			})
		})
	}
}

func revokeSecond(t *testing.T, s *tasktest.Swarm) {
	t.Helper()
	r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: s.Events})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Revoke(t.Context(), revoke.Options{Terminate: true}, "row-2"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestBatchContexts shows that each item has the context of its task. The context of the call
// belongs to no task, and ends with the last of their contexts.
func TestBatchContexts(t *testing.T) {
	type key struct{}
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		var progress []events.Event
		sub, err := s.Events.Subscribe(t.Context(), events.Filter{Types: []string{events.TaskProgress}})
		if err != nil {
			t.Fatal(err)
		}
		m := new(middleware.Metrics)
		ended := make(chan time.Duration, 1)
		began := time.Now()
		wrap := func(next task.Handler) task.Handler {
			return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
				got, err := next.Handle(context.WithValue(ctx, key{}, r.ID), r)
				if err == nil {
					got = got.(int) + 100
				}
				return got, err
			})
		}
		s.Start(consumer.Config{Metrics: m, Queues: map[string]consumer.QueueConfig{"default": {Workers: 2}}}, func(r task.Registrar) error {
			return rows.HandleBatch(r, task.BatchOptions{Max: 2}, func(ctx context.Context, batch []*rowItem) error {
				if _, ok := task.FromContext(ctx); ok || ctx.Value(key{}) != nil {
					t.Error("the context of the call belongs to a task")
				}
				for _, item := range batch {
					id := task.ID(fmt.Sprint("row-", item.Args))
					if r, ok := task.FromContext(item.Context()); !ok || r.ID != id || item.Context().Value(key{}) != id {
						t.Errorf("the context of %s is another one", id)
					}
					task.Progress(item.Context(), item.Args, 2, "")
				}
				if n := m.Active.Count(); n != 2 {
					t.Errorf("%d tasks run", n)
				}
				<-ctx.Done()
				ended <- time.Since(began)
				if err := context.Cause(ctx); !errors.Is(err, task.ErrSoftTimeLimit) {
					t.Error(err)
				}
				return double(batch)
			}, wrap)
		})
		futures := slices.Concat(submitRows(t, s, 1, 1, task.WithSoftTimeLimit(time.Minute)), submitRows(t, s, 2, 2, task.WithSoftTimeLimit(2*time.Minute)))
		s.DrainAll()
		if took := <-ended; took != 2*time.Minute {
			t.Errorf("the context of the call ended after %v", took)
		}
		for i, f := range futures {
			if got, err := f.Get(t.Context()); err != nil || got != 100+2*(i+1) {
				t.Errorf("task %d: %d, %v", i+1, got, err)
			}
			e, err := sub.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			progress = append(progress, e)
		}
		if progress[0].TaskID == progress[1].TaskID {
			t.Errorf("both progresses are of %s", progress[0].TaskID)
		}
	})
}

// TestBatchBadArgs shows that a task whose arguments do not fit fails without a call.
func TestBatchBadArgs(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		_, noted := batchSwarm(t, s, 2, task.BatchOptions{Max: 2}, func(_ context.Context, batch []*rowItem) error { return double(batch) }, nil)
		f, err := task.New[string, int]("rows").Submit(t.Context(), s, "x")
		if err != nil {
			t.Fatal(err)
		}
		submitRows(t, s, 1, 2)
		s.DrainAll()
		if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrBadArgs) {
			t.Error(err)
		}
		wantCalls(t, noted, "0s [1 2]")
	})
}

// TestBatchRefused has the configurations in which a batch can never be full.
func TestBatchRefused(t *testing.T) {
	onBulk := rows.With(task.WithQueue("bulk"))
	small := consumer.QueueConfig{Workers: 2}
	for name, c := range map[string]struct {
		queues map[string]consumer.QueueConfig
		group  string
		def    task.Task[int, int]
		opts   task.BatchOptions
		want   string // a part of the error; "": none
	}{
		"no Max":                 {def: rows, want: "BatchOptions.Max is 0"},
		"a negative Wait":        {def: rows, opts: task.BatchOptions{Max: 1, Wait: -1}, want: "BatchOptions.Wait is -1ns"},
		"too few workers":        {map[string]consumer.QueueConfig{"default": small}, "", rows, task.BatchOptions{Max: 3}, `task "rows": a batch of 3 tasks needs as many workers, and queue "default" has 2; set its Workers to 3 or more, or BatchOptions.Max to 2 or less`},
		"enough":                 {map[string]consumer.QueueConfig{"default": small}, "", rows, task.BatchOptions{Max: 2}, ""},
		"a small prefetch":       {map[string]consumer.QueueConfig{"default": {Workers: 9, Prefetch: 2}}, "", rows, task.BatchOptions{Max: 3}, `queue "default" has 2; raise its Prefetch`},
		"no prefetch limit":      {map[string]consumer.QueueConfig{"default": {Workers: 9, Prefetch: -1}}, "", rows, task.BatchOptions{Max: 9}, ""},
		"scaled by itself":       {map[string]consumer.QueueConfig{"default": {Autoscale: &consumer.Autoscale{Min: 1, Max: 9}}}, "", rows, task.BatchOptions{Max: 9}, ""},
		"one queue suffices":     {map[string]consumer.QueueConfig{"default": small, "bulk": {Workers: 9}}, "", rows, task.BatchOptions{Max: 9}, ""},
		"its queue is too small": {map[string]consumer.QueueConfig{"default": {Workers: 9}, "bulk": small}, "", onBulk, task.BatchOptions{Max: 9}, `queue "bulk" has 2`},
		"its queue is not here":  {map[string]consumer.QueueConfig{"default": {Workers: 9}}, "", onBulk, task.BatchOptions{Max: 9}, ""},
		"queues of a group":      {map[string]consumer.QueueConfig{"default": small}, "all", rows, task.BatchOptions{Max: 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				store := memsettings.New()
				defer func() { _ = store.Close(t.Context()) }()
				on, err := consumer.New(consumer.Config{Broker: s.Broker, Queues: c.queues, Group: c.group, Settings: store})
				if err != nil {
					t.Fatal(err)
				}
				err = c.def.HandleBatch(on, c.opts, func(context.Context, []*rowItem) error { return nil })
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			})
		})
	}
	if err := rows.HandleBatch(new(task.Mux), task.BatchOptions{Max: 1}, nil); err == nil {
		t.Error("a nil handler was registered")
	}
}

// TestBatchQuarantine has a task that ends each process that runs it. After two deaths the tasks of
// its batch run alone, at once. A batch that waits when a quarantine begins is called at once. The
// bad task becomes a dead letter, and the others succeed.
func TestBatchQuarantine(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		start := func() (*tasktest.Consumer, *calls) {
			return batchSwarm(t, s, 8, task.BatchOptions{Max: 8, Wait: time.Minute}, func(ctx context.Context, batch []*rowItem) error {
				r, _ := task.FromContext(batch[0].Context())
				if suspect := r.Deliveries > 2; r.Quarantined != suspect || suspect && len(batch) > 1 {
					t.Errorf("delivery %d: Quarantined is %t, %d tasks", r.Deliveries, r.Quarantined, len(batch))
				}
				if slices.ContainsFunc(batch, func(item *rowItem) bool { return item.Args == 1 }) {
					tasktest.Crash(ctx)
				}
				return double(batch)
			}, nil)
		}
		futures := submitRows(t, s, 1, 4)
		for i := range 2 {
			on, noted := start()
			s.Advance(5 * time.Minute)
			if !on.Crashed() || len(noted.sorted()) != 1 || !strings.HasSuffix(noted.sorted()[0], "[1 2 3 4]") {
				t.Fatalf("process %d: crashed %t, calls %q", i, on.Crashed(), noted.sorted())
			}
		}
		var alone []string
		began := time.Now()
		for i := 0; ; i++ {
			on, noted := start()
			if i == 0 {
				futures = append(futures, submitRows(t, s, 6, 7)...)
			}
			s.Advance(50 * time.Second)
			for _, call := range noted.sorted() {
				alone = append(alone, strings.Fields(call)[1])
			}
			if !on.Crashed() {
				break
			}
		}
		s.DrainAll()
		// the verdict about a process takes 30 s, and the quarantines no time
		if took := time.Since(began); took > 110*time.Second {
			t.Errorf("it took %v", took)
		}
		slices.Sort(alone)            // the waiting batch and a quarantine begin in the same moment
		alone = slices.Compact(alone) // the acknowledgement of one may end with its process
		if want := []string{"[1]", "[2]", "[3]", "[4]", "[6"}; !slices.Equal(alone, want) {
			t.Errorf("calls %q, want %q", alone, want)
		}
		for i, f := range futures {
			_, err := f.Get(t.Context())
			if poison := i == 0; errors.Is(err, task.ErrPoison) != poison || !poison && err != nil {
				t.Errorf("task %d: %v", i+1, err)
			}
		}
	})
}

// TestBatchStress sends tasks whose contexts end at any time. Each task is in one call, and no call
// is larger than Max or has a task that left.
func TestBatchStress(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		var mu sync.Mutex
		seen := map[int]int{}
		on, _ := batchSwarm(t, s, 16, task.BatchOptions{Max: 8, Wait: 20 * time.Millisecond}, func(_ context.Context, batch []*rowItem) error {
			if len(batch) > 8 || len(batch) == 0 {
				t.Errorf("a call of %d tasks", len(batch))
			}
			mu.Lock()
			for _, item := range batch {
				seen[item.Args]++
			}
			mu.Unlock()
			<-time.After(rand.N(20 * time.Millisecond))
			return double(batch)
		}, nil)
		const n = 2000
		p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "default"}}})
		for i := range n {
			var opts []task.Option
			if rand.N(3) == 0 {
				opts = append(opts, task.WithTimeLimit(time.Millisecond+rand.N(30*time.Millisecond)))
			}
			if _, err := rows.Submit(t.Context(), p, i, opts...); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				<-time.After(rand.N(50 * time.Millisecond))
				if err := on.Scale("default", 1+rand.N(24)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sum := s.DrainAll()
		if sum.Succeeded+sum.Failed != n {
			t.Errorf("%+v", sum)
		}
		most := 0
		for _, times := range seen {
			most = max(most, times)
		}
		if most != 1 || len(seen) < sum.Succeeded {
			t.Errorf("%d tasks succeeded, %d were in calls, one of them in %d", sum.Succeeded, len(seen), most)
		}
	})
}
