package consumer_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/task"
)

// TestRetryOfTheLargestTaskOfARawQueue shows that the retry of the largest task is sent also in a
// queue of raw messages. The count of retries makes the message larger.
func TestRetryOfTheLargestTaskOfARawQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Queues = map[string]consumer.QueueConfig{"default": {Task: "other"}}
		})
		large := task.New[string, int]("large", task.WithID("large-1"), task.WithRetry(task.RetryPolicy{}), task.WithRetryDelay(time.Second))
		attempts := 0
		must0(t, large.Handle(b.c, func(context.Context, string) (int, error) {
			if attempts++; attempts == 1 {
				return 0, context.DeadlineExceeded
			}
			return attempts, nil
		}))
		b.run()
		defer b.end()
		args := strings.Repeat("x", wire.DefaultMaxBody)
		for {
			if _, err := large.Submit(t.Context(), b.p, args); err == nil {
				break
			}
			args = args[1:]
		}
		time.Sleep(time.Minute)
		if s := b.stats(t); attempts != 2 || s.Dead != 0 {
			t.Errorf("%d attempts, %+v", attempts, s)
		}
	})
}
