package consumer_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/task"
)

// lateBroker is a broker that may be slow to subscribe and to replace messages. As RabbitMQ, it
// does not count held messages.
type lateBroker struct {
	*membroker.Broker
	subscribe map[string]chan struct{} // by queue: Subscribe waits until it is closed
	replace   chan struct{}            // Retry waits until it can receive
}

func (b lateBroker) Unwrap() any { return b.Broker }

func (b lateBroker) Subscribe(ctx context.Context, queue string, o broker.SubscribeOptions) (broker.Subscription, error) {
	if ready := b.subscribe[queue]; ready != nil {
		<-ready
	}
	return b.Broker.Subscribe(ctx, queue, o)
}

func (b lateBroker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	select {
	case <-b.replace:
		return b.Broker.Retry(ctx, d, next)
	case <-ctx.Done():
		return broker.ErrUnavailable
	}
}

func (b lateBroker) Stats(ctx context.Context, queue string) (broker.Stats, error) {
	s, err := b.Broker.Stats(ctx, queue)
	s.Held = -1
	return s, err
}

// TestPauseWhileQueueIsAdded shows that a queue starts no task if it is paused while AddQueue still
// waits for the broker.
func TestPauseWhileQueueIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store, ready := memsettings.New(), make(chan struct{})
		defer store.Close(ctx)
		b := newTable(t, func(c *consumer.Config) {
			c.Settings = store
			c.Broker = lateBroker{Broker: c.Broker.(*membroker.Broker), subscribe: map[string]chan struct{}{"late": ready}}
		})
		b.run()
		synctest.Wait()
		added := make(chan error, 1)
		go func() { added <- b.c.AddQueue(ctx, "late", consumer.QueueConfig{}) }()
		synctest.Wait()
		b.submit(1, task.WithQueue("late"))
		if err := settings.PauseQueue(ctx, store, "late", settings.Pause{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(ready)
		if err := <-added; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // in the bubble's time
		if n := b.runs.Load(); n != 0 {
			t.Errorf("%d tasks have started in a paused queue", n)
		}
		if _, err := settings.ResumeQueue(ctx, store, "late"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := b.runs.Load(); n != 1 {
			t.Errorf("%d tasks have run after the pause, want 1", n)
		}
		b.end()
	})
}

// TestSlowReturnOfPausedTasks shows that the messages of a paused task come back. The broker
// refuses to move them for long, and does not count held messages.
func TestSlowReturnOfPausedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store, replace := memsettings.New(), make(chan struct{})
		defer store.Close(ctx)
		b := newTable(t, func(c *consumer.Config) {
			c.Settings = store
			c.Broker = lateBroker{Broker: c.Broker.(*membroker.Broker), replace: replace}
		})
		if err := settings.PauseTask(ctx, store, "echo", settings.Pause{}); err != nil {
			t.Fatal(err)
		}
		b.run()
		b.submit(1)
		replace <- struct{}{} // the message is moved out of its queue
		synctest.Wait()
		if _, err := settings.ResumeTask(ctx, store, "echo"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute) // in the bubble's time: longer than StoreRetry
		close(replace)
		time.Sleep(time.Minute)
		if n := b.runs.Load(); n != 1 {
			st, err := b.server.Connect().Stats(ctx, "default.paused.echo")
			t.Errorf("%d tasks have run after the pause, want 1; the queue of moved messages: %+v, %v", n, st, err)
		}
		b.end()
	})
}

// TestQueuesChangeBesideGroup shows that a queue is consumed after AddQueue, and not after
// RemoveQueue. Meanwhile the settings of the consumer's group are applied.
func TestQueuesChangeBesideGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := memsettings.New()
		defer store.Close(ctx)
		b := newTable(t, func(c *consumer.Config) { c.Settings, c.Group = store, "batch" })
		b.run()
		synctest.Wait()
		change := func(do func() error) int {
			changed := make(chan error)
			go func() { changed <- settings.LimitTask(ctx, store, "other", settings.Limit{Concurrency: 1}) }()
			if err := errors.Join(do(), <-changed); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return len(b.c.Stats().Queues)
		}
		for range 200 {
			if n := change(func() error { return b.c.AddQueue(ctx, "more", consumer.QueueConfig{}) }); n != 2 {
				t.Fatalf("%d queues are consumed after AddQueue, want 2", n)
			}
			if n := change(func() error { return b.c.RemoveQueue(ctx, "more") }); n != 1 {
				t.Fatalf("%d queues are consumed after RemoveQueue, want 1", n)
			}
		}
		b.end()
	})
}

// TestGroupWorkers shows that a queue of the group gets the number of workers in its settings.
// Without such a number it gets the number of the program again.
func TestGroupWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memsettings.New()
		defer store.Close(ctx)
		b := newTable(t, func(c *consumer.Config) {
			c.Settings, c.Group, c.Queues = store, "batch", map[string]consumer.QueueConfig{"own": {Workers: 2}}
		})
		b.run()
		synctest.Wait()
		want := func(when string, workers map[string]int) {
			t.Helper()
			synctest.Wait()
			got := make(map[string]int)
			for _, q := range b.c.Stats().Queues {
				got[q.Name] = q.Workers
			}
			if diff := cmp.Diff(workers, got); diff != "" {
				t.Errorf("%s the queues have other workers (-want +got):\n%s", when, diff)
			}
		}
		serve := func(queue string, s settings.Served) {
			t.Helper()
			if err := settings.ServeQueue(ctx, store, "batch", queue, s); err != nil {
				t.Fatal(err)
			}
		}
		byDefault := runtime.GOMAXPROCS(0)
		serve("own", settings.Served{Workers: 5})
		serve("more", settings.Served{Workers: byDefault + 3})
		want("with numbers", map[string]int{"own": 5, "more": byDefault + 3})
		serve("own", settings.Served{})
		serve("more", settings.Served{})
		want("without numbers", map[string]int{"own": 2, "more": byDefault})
		if err := b.c.Scale("own", 4); err != nil {
			t.Fatal(err)
		}
		serve("more", settings.Served{Removed: true})
		want("after Scale", map[string]int{"own": 4})
		serve("own", settings.Served{Workers: 7})
		serve("more", settings.Served{Workers: 1})
		want("again with numbers", map[string]int{"own": 7, "more": 1})
		if _, err := settings.GroupQueues("batch").Remove(ctx, store); err != nil {
			t.Fatal(err)
		}
		want("without the group's settings", map[string]int{"own": 2})
		b.end()
	})
}

// TestLimitByMistake shows that a limit of 1/h that was set by mistake ends with its correction.
// The hour that it has used ahead does not count for a new rate. Its postponed tasks are tried
// again within 15 minutes.
func TestLimitByMistake(t *testing.T) {
	for name, next := range map[string]settings.Limit{"raised": {Rate: "10/s"}, "removed": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, store := t.Context(), memsettings.New()
				defer store.Close(ctx)
				b := newTable(t, func(c *consumer.Config) { c.Settings, c.Limiter = store, limit.NewMemory() })
				b.run()
				synctest.Wait()
				set := func(l settings.Limit) {
					if err := settings.LimitQueue(ctx, store, "default", l); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				runs := func(want int64, when string) {
					t.Helper()
					if n := b.runs.Load(); n != want {
						t.Errorf("%s %d tasks have run, want %d", when, n, want)
					}
				}
				set(settings.Limit{Rate: "1/h"})
				for i := range 3 {
					b.submit(i)
				}
				time.Sleep(5 * time.Minute) // in the bubble's time
				runs(1, "with the mistake")
				set(next)
				b.submit(3)
				time.Sleep(time.Second) // in the bubble's time
				runs(2, "after a new task")
				time.Sleep(16 * time.Minute) // in the bubble's time
				runs(4, "at last")
				b.end()
			})
		})
	}
}
