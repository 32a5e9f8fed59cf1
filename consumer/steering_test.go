package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
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
