package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var hold = task.New[int, int]("hold", task.WithIgnoreResult(true))

// holding is a table with a handler of hold that runs until release, or for a given time.
type holding struct {
	b       *table
	mu      sync.Mutex
	started []int
	now     int
	most    int
	release chan struct{}
}

func newHolding(t *testing.T, q consumer.QueueConfig, change ...func(*consumer.Config)) *holding {
	t.Helper()
	h := &holding{release: make(chan struct{})}
	h.b = newTable(t, func(c *consumer.Config) {
		c.Queues = map[string]consumer.QueueConfig{"default": q}
		for _, f := range change {
			f(c)
		}
	})
	if err := hold.Handle(h.b.c, func(ctx context.Context, i int) (int, error) {
		h.mu.Lock()
		h.started = append(h.started, i)
		h.now++
		h.most = max(h.most, h.now)
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			h.now--
			h.mu.Unlock()
		}()
		select {
		case <-h.release:
			return i, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *holding) submit(from, n int, opts ...task.Option) {
	h.b.t.Helper()
	for i := from; i < from+n; i++ {
		if _, err := hold.Submit(h.b.t.Context(), h.b.p, i, opts...); err != nil {
			h.b.t.Fatal(err)
		}
	}
}

// runs returns the arguments of the started tasks, sorted.
func (h *holding) runs() []int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.started))
}

func (h *holding) held() broker.Stats {
	h.b.t.Helper()
	synctest.Wait()
	s, err := h.b.server.Connect().Stats(h.b.t.Context(), "default")
	if err != nil {
		h.b.t.Fatal(err)
	}
	return s
}

// want checks the numbers of running and ready tasks. The memory broker holds for a consumer only
// tasks that a worker has received.
func (h *holding) want(active, ready int) {
	h.b.t.Helper()
	s := h.held()
	if got := h.b.c.Stats(); got.Active != active || s.Ready != ready {
		h.b.t.Errorf("%d run and %d are ready, want %d and %d; %+v", got.Active, s.Ready, active, ready, s)
	}
}

func must0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestScale (S46, S51) shows that new workers start at once, surplus workers leave after their
// tasks, and the prefetch follows. Promises: S45.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2, PrefetchMultiplier: 3})
		h.submit(0, 60)
		h.b.run()
		h.want(2, 58)
		must0(t, h.b.c.Scale("default", 8))
		h.want(8, 52)
		if s := h.b.c.Stats().Queues[0]; s.Workers != 8 || s.Prefetch != 24 {
			t.Errorf("after the growth: %+v", s)
		}
		must0(t, h.b.c.Scale("default", 2))
		h.want(8, 52) // no task is cancelled
		for range 6 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		if s := h.b.c.Stats(); s.Active != 2 || s.Reserved > 2 {
			t.Errorf("while the last of the old workers leave: %+v", s)
		}
		h.most = 0
		for range 20 {
			h.release <- struct{}{}
			synctest.Wait()
		}
		if h.most > 2 {
			t.Errorf("%d ran at once after the queue had 2 workers again", h.most)
		}
		close(h.release)
		synctest.Wait()
		if diff := cmp.Diff(60, len(slices.Compact(h.runs()))); diff != "" || len(h.started) != 60 {
			t.Errorf("of 60 tasks %d ran, %d runs", len(slices.Compact(h.runs())), len(h.started))
		}
		if n := h.b.metrics.Crashes.Count(); n != 0 {
			t.Errorf("%d crashes are counted: what a scale gives back is none", n)
		}
		h.b.end()
	})
}

// TestScaleKeepsAFixedPrefetch (S53) shows that Scale does not change QueueConfig.Prefetch.
func TestScaleKeepsAFixedPrefetch(t *testing.T) {
	for _, fixed := range []int{5, -1} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: fixed})
			h.submit(0, 20)
			h.b.run()
			before := h.held()
			must0(t, h.b.c.Scale("default", 3))
			h.held()
			must0(t, h.b.c.Scale("default", 1))
			if s := h.b.c.Stats().Queues[0]; s.Prefetch != fixed || s.Workers != 1 || s.Active != 3 {
				t.Errorf("prefetch %d: before %+v, now %+v", fixed, before, s)
			}
			close(h.release)
			if n := len(h.runs()); n != 20 {
				t.Errorf("%d runs of 20 tasks", n)
			}
			h.b.end()
		})
	}
}

// TestPause (S73) shows that a paused queue starts no tasks and holds only running ones, which end
// as usual.
func TestPause(t *testing.T) {
	for _, prefetch := range []int{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			h := newHolding(t, consumer.QueueConfig{Workers: 2, Prefetch: prefetch})
			h.submit(0, 20)
			h.b.run()
			h.held()
			must0(t, h.b.c.Pause())
			must0(t, h.b.c.Pause("default")) // it is paused already
			h.want(2, 18)
			h.release <- struct{}{}
			h.release <- struct{}{}
			h.submit(20, 1)
			h.want(0, 19)
			if s := h.b.c.Stats(); !s.Queues[0].Paused || s.Started != 2 || s.Succeeded != 2 {
				t.Errorf("while it is paused: %+v", s)
			}
			must0(t, h.b.c.Resume("default"))
			must0(t, h.b.c.Resume())
			synctest.Wait()
			if n := h.b.c.Stats().Active; n != 2 {
				t.Errorf("%d run after the pause, want 2", n)
			}
			close(h.release)
			if diff := cmp.Diff(21, len(h.runs())); diff != "" {
				t.Errorf("runs of 21 tasks: %s", diff)
			}
			if n := h.b.metrics.Crashes.Count(); n != 0 {
				t.Errorf("%d crashes are counted: what a pause gives back is none", n)
			}
			h.b.end()
		})
	}
}

// TestPauseOfOneQueue shows that the other queues continue.
func TestPauseOfOneQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 1}, func(c *consumer.Config) { c.Queues["other"] = consumer.QueueConfig{Workers: 1} })
		h.b.run()
		synctest.Wait()
		must0(t, h.b.c.Pause("default"))
		h.submit(1, 1)
		h.submit(2, 1, task.WithQueue("other"))
		if diff := cmp.Diff([]int{2}, h.runs()); diff != "" {
			t.Error(diff)
		}
		must0(t, h.b.c.Resume("default"))
		if diff := cmp.Diff([]int{1, 2}, h.runs()); diff != "" {
			t.Error(diff)
		}
		close(h.release)
		h.b.end()
	})
}

// TestStopWhilePaused shows that a stop of a paused consumer loses no tasks.
func TestStopWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 2})
		h.submit(0, 10)
		h.b.run()
		h.held()
		must0(t, h.b.c.Pause())
		close(h.release)
		synctest.Wait()
		h.b.c.Stop()
		h.b.end()
		if s := h.held(); s.Ready != 8 || s.Held != 0 {
			t.Errorf("after the stop: %+v", s)
		}
	})
}

// TestControlOutsideOfRun shows that control methods return errors outside of Run and change
// nothing.
func TestControlOutsideOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 3, PrefetchMultiplier: 2})
		c := h.b.c
		idle := func(when string) {
			t.Helper()
			for what, err := range map[string]error{"Scale": c.Scale("default", 2), "Pause": c.Pause(), "Resume": c.Resume("default")} {
				if !errors.Is(err, consumer.ErrNotRunning) {
					t.Errorf("%s %s: %v", what, when, err)
				}
			}
			s := c.Stats()
			want := []consumer.QueueStats{{Name: "default", Workers: 3, Prefetch: 6}}
			if diff := cmp.Diff(want, s.Queues); diff != "" || s.Running || len(c.Active())+len(c.Reserved()) != 0 {
				t.Errorf("%s: %+v %s", when, s, diff)
			}
		}
		idle("before Run")
		h.b.run()
		synctest.Wait()
		for what, err := range map[string]error{"Scale": c.Scale("nope", 2), "Pause": c.Pause("default", "nope"), "Resume": c.Resume("nope")} {
			if !errors.Is(err, consumer.ErrNoQueue) {
				t.Errorf("%s of no queue: %v", what, err)
			}
		}
		for _, n := range []int{-1, 0, consumer.MaxWorkers + 1} {
			if err := c.Scale("default", n); err == nil || !strings.Contains(err.Error(), "workers") {
				t.Errorf("Scale to %d: %v", n, err)
			}
		}
		if s := c.Stats(); !s.Running || s.Queues[0].Paused {
			t.Errorf("a Pause that failed has paused: %+v", s)
		}
		close(h.release)
		h.b.end()
		idle("after its end")
		c.Stop()
	})
}

// TestStopBeforeRun shows that Run ends at once after Stop.
func TestStopBeforeRun(t *testing.T) {
	c, err := consumer.New(consumer.Config{Broker: membroker.New()})
	must0(t, err)
	c.Stop()
	c.Stop()
	must0(t, c.Run(t.Context()))
}

// TestActiveAndReserved shows that Active and Reserved list the running and the waiting tasks,
// without arguments.
func TestActiveAndReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, consumer.QueueConfig{Workers: 4, PrefetchMultiplier: 2})
		begin := time.Now()
		h.b.run()
		h.submit(0, 3, task.WithRateLimit("1/m"), task.WithID("limited"))
		synctest.Wait()
		active, reserved := h.b.c.Active(), h.b.c.Reserved()
		want := control.Task{ID: "limited", Name: "hold", Queue: "default", Since: begin, Attempt: 1}
		if diff := cmp.Diff([]control.Task{want}, active); diff != "" {
			t.Errorf("active: %s", diff)
		}
		if len(reserved) != 0 { // one id is one message
			t.Errorf("reserved: %+v", reserved)
		}
		h.submit(7, 2, task.WithRateLimit("1/m"))
		synctest.Wait()
		if got := h.b.c.Stats(); got.Active != 1 || got.Reserved != 2 || len(h.b.c.Reserved()) != 2 {
			t.Errorf("%+v, reserved %+v", got, h.b.c.Reserved())
		}
		close(h.release)
		time.Sleep(3 * time.Minute)
		if got := h.b.c.Stats(); got.Active != 0 || got.Reserved != 0 || got.Started != 3 {
			t.Errorf("in the end: %+v", got)
		}
		h.b.end()
	})
}

// TestControlUnderLoad shows that each task runs once while all control methods are called and the
// consumer stops.
func TestControlUnderLoad(t *testing.T) {
	server := membroker.NewServer(membroker.Config{})
	const n = 3000
	var mu sync.Mutex
	runs := make(map[int]int, n)
	done := make(chan struct{})
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Queues: map[string]consumer.QueueConfig{"default": {Workers: 3}}})
	must0(t, err)
	must0(t, hold.Handle(c, func(_ context.Context, i int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if runs[i]++; len(runs) == n {
			close(done)
		}
		return 0, nil
	}))
	p, err := producer.New(producer.Config{Broker: server.Connect()})
	must0(t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				var err error
				switch (i + g) % 4 {
				case 0:
					err = c.Scale("default", 1+(i*7+g)%20)
				case 1:
					err = c.Pause()
				case 2:
					err = c.Resume()
				default:
					c.Stats()
					c.Active()
					c.Reserved()
					err = c.SetRateLimit("hold", []string{"", "5000/s", consumer.RateDefault}[i%3])
				}
				if err != nil && !errors.Is(err, consumer.ErrNotRunning) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for i := range n {
		if _, err := hold.Submit(t.Context(), p, i); err != nil {
			t.Fatal(err)
		}
	}
	wg.Go(func() { // the other goroutines may leave the consumer paused
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				if err := c.Resume(); err != nil && !errors.Is(err, consumer.ErrNotRunning) {
					t.Error(err)
				}
			}
		}
	})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Errorf("only %d of %d tasks ran", len(runs), n)
		close(done)
	}
	wg.Wait()
	c.Stop()
	must0(t, <-ended)
	mu.Lock()
	defer mu.Unlock()
	for i, count := range runs {
		if count != 1 {
			t.Errorf("task %d ran %d times", i, count)
		}
	}
	must0(t, p.Close(context.Background()))
}

func (h *holding) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.started)
}

// prefetchBroker is a broker whose subscriptions call set in place of SetPrefetch.
type prefetchBroker struct {
	*membroker.Broker
	set func(ctx context.Context, s broker.Subscription, n int) error
}

func (b prefetchBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, queue, o)
	return prefetchSubscription{s, b.set}, err
}

type prefetchSubscription struct {
	broker.Subscription
	set func(ctx context.Context, s broker.Subscription, n int) error
}

func (s prefetchSubscription) SetPrefetch(ctx context.Context, n int) error {
	return s.set(ctx, s.Subscription, n)
}

// deafBroker returns a broker whose subscriptions fail to set the prefetch while deaf is set. A
// prefetch of 0 is then executed, but the answer is lost.
func deafBroker(b broker.Broker, deaf *atomic.Bool) broker.Broker {
	return prefetchBroker{b.(*membroker.Broker), func(ctx context.Context, s broker.Subscription, n int) error {
		if deaf.Load() && n != 0 {
			return broker.ErrUnavailable
		}
		_, err := broker.SetPrefetch(ctx, s, n)
		if deaf.Load() {
			return broker.ErrUnavailable
		}
		return err
	}}
}

// TestScaleIsRepeated shows that a subscription that was stopped for a Scale fetches again when
// the broker is back, without another Scale.
func TestScaleIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deaf atomic.Bool
		h := newHolding(t, consumer.QueueConfig{Workers: 4, PrefetchMultiplier: 4}, func(c *consumer.Config) {
			c.Broker = deafBroker(c.Broker, &deaf)
		})
		h.submit(0, 20)
		h.b.run()
		h.want(4, 16)
		deaf.Store(true)
		if err := h.b.c.Scale("default", 2); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Scale: %v", err)
		}
		for range 4 {
			h.release <- struct{}{}
		}
		h.want(0, 16) // the broker has executed the stop and nothing since
		deaf.Store(false)
		time.Sleep(time.Minute)
		h.want(2, 14)
		if s := h.b.c.Stats().Queues[0]; s.Workers != 2 || s.Prefetch != 8 {
			t.Errorf("%+v", s)
		}
		close(h.release)
		synctest.Wait()
		deaf.Store(true)
		_ = h.b.c.Scale("default", 1)
		h.b.end() // also while it repeats
	})
}

// TestControlWithoutTheBroker shows that Scale and Pause return the error of the broker, make the
// local changes, and can be repeated.
func TestControlWithoutTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deaf atomic.Bool
		h := newHolding(t, consumer.QueueConfig{Workers: 2}, func(c *consumer.Config) {
			c.Broker = deafBroker(c.Broker, &deaf)
		})
		h.submit(0, 20)
		h.b.run()
		h.want(2, 18)
		deaf.Store(true)
		c := h.b.c
		if err := c.Scale("default", 4); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Scale: %v", err)
		}
		h.want(4, 16)
		if err := c.Pause(); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Pause: %v", err)
		}
		for range 4 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		if s := c.Stats(); s.Active != 0 || !s.Queues[0].Paused {
			t.Errorf("a pause that the broker does not know of: %+v", s)
		}
		if err := c.Resume(); !errors.Is(err, broker.ErrUnavailable) || !c.Stats().Queues[0].Paused {
			t.Errorf("Resume: %v", err)
		}
		deaf.Store(false)
		must0(t, c.Resume())
		must0(t, c.Scale("default", 4))
		close(h.release)
		if n := len(h.runs()); n != 20 {
			t.Errorf("%d runs of 20 tasks", n)
		}
		h.b.end()
	})
}
