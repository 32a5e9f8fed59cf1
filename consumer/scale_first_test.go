package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
)

// TestFirstTaskMayScale: a handler may change its consumer from the first task on.
func TestFirstTaskMayScale(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newTable(t, func(c *consumer.Config) { c.Queues = map[string]consumer.QueueConfig{"a": {Workers: 1}} })
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
