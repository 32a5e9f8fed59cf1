package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestFirstTaskMayScale shows that a handler may scale its consumer from the first task on, also
// while the workers of other queues start.
func TestFirstTaskMayScale(t *testing.T) {
	queues := map[string]consumer.QueueConfig{"a": {Workers: 1}}
	for i := range 300 {
		queues[fmt.Sprintf("later-%03d", i)] = consumer.QueueConfig{Workers: 1}
	}
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(c *consumer.Config) { c.Queues = queues })
			must0(t, b.server.Connect().Declare(t.Context(), broker.Queue{Name: "a"}))
			errs := make(chan error, 1)
			must0(t, hold.Handle(b.c, func(context.Context, int) (int, error) {
				errs <- b.c.Scale("a", 3)
				return 0, nil
			}))
			if _, err := hold.Submit(t.Context(), b.p, 1, task.WithQueue("a")); err != nil {
				t.Fatal(err)
			}
			b.run()
			if err := <-errs; err != nil {
				t.Fatalf("Scale in the first task: %v", err)
			}
			b.end()
		})
	}
}
