package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// How a task is run is said in layers: the static configuration lowest, then the consumer's, the task's definition, and
// the call on top. A key that is set goes before all layers below, even when it is set to zero.
func ExampleConfig_metadata() {
	render := task.New[string, string]("render", task.WithTimeLimit(time.Minute))

	p, c, run := inMemory(
		producer.Config{Defaults: task.Metadata{MaxRetries: task.Set(1), RetryDelay: task.Set(time.Hour)}},
		consumer.Config{Queues: map[string]consumer.QueueConfig{
			"default": {Meta: task.Metadata{MaxRetries: task.Set(2), TimeLimit: task.Set(time.Hour)}},
		}},
	)
	must(render.Handle(c, func(ctx context.Context, _ string) (string, error) {
		r, _ := task.FromContext(ctx)
		m := r.Effective
		return fmt.Sprint(m.MaxRetries.Or(-1), " ", m.TimeLimit.Or(-1), " ", m.RetryDelay.Or(-1)), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	show := func(opts ...task.Option) {
		future, err := render.Submit(ctx, p, "page", opts...)
		must(err)
		fmt.Println(future.Get(ctx))
	}
	show()
	show(task.WithMaxRetries(0), task.WithTimeLimit(time.Second))
	// Output:
	// 2 1m0s 1h0m0s <nil>
	// 0 1s 1h0m0s <nil>
}
