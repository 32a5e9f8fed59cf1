package endtoend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// testBounds: the handlers of a key stay within the bound of the key, with retries. While tasks of
// a key wait, as many run as the bound allows.
func testBounds(t *testing.T, open Open) {
	const (
		most  = 3
		tasks = 60 // of each key
	)
	keys := []string{"a", "b", "c", ""}
	r := newRoad(t, open, func(p *producer.Config, c *consumer.Config) {
		p.Queues = []broker.Queue{{Name: queueName, Fair: true}}
		c.Queues[queueName] = consumer.QueueConfig{Workers: most*len(keys) + 4, Fair: true, Bounds: broker.Bounds{Key: broker.Bound{Max: most}}}
	})
	skipWithoutBounds(t, r)
	var (
		mu      sync.Mutex
		running = map[string]int{}
		highest = map[string]int{}
	)
	count := func(key string, n int) int {
		mu.Lock()
		defer mu.Unlock()
		running[key] += n
		highest[key] = max(highest[key], running[key])
		return running[key]
	}
	full := make(chan struct{}) // closed when each key has its places busy
	handle(r, work, func(ctx context.Context, i int) (int, error) {
		key := keys[i%len(keys)]
		defer count(key, -1)
		if n := count(key, 1); n > most {
			t.Errorf("%d tasks of the key %q run, want %d at most", n, key, most)
		}
		select {
		case <-full:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		if req, _ := task.FromContext(ctx); req.Retries == 0 && i%10 == 9 {
			return 0, task.Retry(errBroken, task.After(time.Millisecond))
		}
		return i, nil
	})
	futures := make([]*task.Future[int], tasks*len(keys))
	for i := range futures {
		futures[i] = submit(r, work, i, task.WithFairnessKey(keys[i%len(keys)]))
	}
	r.start()
	r.eventually("all places of all keys are busy", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(running) == fmt.Sprint(map[string]int{"a": most, "b": most, "c": most, "": most})
	})
	close(full)
	for i, f := range futures {
		want(r, f, i)
	}
}

// skipWithoutBounds skips the test if the broker of r has no bounds.
func skipWithoutBounds(t *testing.T, r *road) {
	t.Helper()
	err := broker.Declare(r.ctx(), r.broker, broker.Queue{Name: queueName, Fair: true})
	if err == nil {
		var s broker.Subscription
		s, err = r.broker.Subscribe(r.ctx(), queueName, broker.SubscribeOptions{Prefetch: 1, Bounds: broker.Bounds{Key: broker.Bound{Max: 1}}})
		if err == nil {
			err = s.Close(r.ctx())
		}
	}
	if errors.Is(err, broker.ErrUnsupported) {
		t.Skip("this broker has no bounds at the claim")
	} else if err != nil {
		t.Fatal(err)
	}
}
