package endtoend

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testFollowsWork (S51): without a configured prefetch, a consumer whose worker runs a long task
// gives back the tasks that it holds, and another consumer runs them. That counts no retry. With
// short tasks the consumer holds more than 4 for each worker, also after a long one.
func testFollowsWork(t *testing.T, open Open) {
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: 1}
	})
	if resizes, _ := offersOf(r); !resizes {
		t.Skip("this broker cannot change the prefetch of a subscription")
	}
	const n, long = 20, 0
	release, started := make(chan struct{}), make(chan struct{}, 1)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let)
	var runs [n]atomic.Int64
	work := task.New[int, int]("follows", task.WithMaxRetries(0))
	register := func(c *consumer.Consumer) {
		if err := work.Handle(c, func(ctx context.Context, i int) (int, error) {
			if i >= n {
				return i, nil
			}
			if runs[i].Add(1); i == long {
				started <- struct{}{}
				<-release
			}
			if q, _ := task.FromContext(ctx); q.Retries != 0 || q.Crashes != 0 {
				t.Errorf("task %d has %d retries and %d crashes", i, q.Retries, q.Crashes)
			}
			return i, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	register(r.consumer)
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, work, i)
	}
	r.start()
	<-started
	r.second(register)
	for i := range fs {
		if i != long {
			want(r, fs[i], i)
		}
	}
	let()
	want(r, fs[long], long)
	for i := range runs {
		if c := runs[i].Load(); c != 1 {
			t.Errorf("task %d ran %d times", i, c)
		}
	}
	if _, advises := capability.As[broker.PrefetchAdviser](r.broker); advises {
		return // the prefetch is its advice
	}
	r.eventually("the prefetch of short tasks grows", func() bool {
		calls := make([]task.Call, 200)
		for i := range calls {
			calls[i] = work.Call(n+i, task.WithIgnoreResult(true))
		}
		if _, err := r.producer.SubmitAll(r.ctx(), calls); err != nil {
			t.Fatal(err)
		}
		return r.consumer.Stats().Queues[0].Prefetch > 4
	})
}

// offersOf reports whether the broker of r can change the prefetch of a subscription, and whether
// the subscription is divided.
func offersOf(r *road) (resizes, divided bool) {
	r.t.Helper()
	sub, err := r.broker.Subscribe(r.ctx(), queueName, broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = sub.Close(r.ctx()) }()
	_, resizes = capability.As[broker.Resizer](sub)
	d, ok := capability.As[broker.Divider](sub)
	return resizes, ok && d.Divided()
}
