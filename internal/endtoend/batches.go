package endtoend

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testBatches: a batch handler gets full batches of the tasks that wait, and each task has its own
// result. Three of 30 tasks fail in their first attempt. Each of these is retried in a call of its
// own. No task is in two calls otherwise.
func testBatches(t *testing.T, open Open) {
	const n, most = 30, 10
	batched := task.New[int, int]("batched", task.WithMaxRetries(1), task.WithRetryDelay(0))
	r := newRoad(t, open, func(_ *producer.Config, c *consumer.Config) {
		c.Queues[queueName] = consumer.QueueConfig{Workers: most}
	})
	var mu sync.Mutex
	calls, largest := make(map[int]int), 0
	// the batches are full before that, unless the machine is very slow
	o := task.BatchOptions{Max: most, Wait: 5 * time.Second}
	if err := batched.HandleBatch(r.consumer, o, func(_ context.Context, batch []*task.BatchItem[int, int]) error {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(batch))
		for _, item := range batch {
			calls[item.Args]++
			req, _ := task.FromContext(item.Context())
			if req.Retries > 0 && len(batch) > 1 {
				t.Errorf("task %d is retried in a batch of %d", item.Args, len(batch))
			}
			if item.Args%10 == 9 && req.Retries == 0 {
				item.Return(0, task.Retry(errBroken))
			} else {
				item.Return(2*item.Args, nil)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fs := make([]*task.Future[int], n)
	for i := range fs {
		fs[i] = submit(r, batched, i)
	}
	r.start()
	for i, f := range fs {
		want(r, f, 2*i)
	}
	mu.Lock()
	defer mu.Unlock()
	if largest != most {
		t.Errorf("the largest batch has %d tasks, want %d", largest, most)
	}
	for i := range n {
		attempts := 1
		if i%10 == 9 {
			attempts = 2
		}
		if calls[i] != attempts {
			t.Errorf("task %d was in %d calls, want %d", i, calls[i], attempts)
		}
	}
}
