package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Metadata come in layers, from the lowest to the highest: the static configuration, the consumer's
// queue, the task's definition, and the call. A key of a higher layer overrides lower ones, even
// with a zero value.
func ExampleConfig_metadata() {
	render := task.New[string, string]("render", task.WithTimeLimit(time.Minute))

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Defaults: task.Metadata{MaxRetries: task.Set(1), RetryDelay: task.Set(time.Hour)}})
	s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{
		"default": {Meta: task.Metadata{MaxRetries: task.Set(2), TimeLimit: task.Set(time.Hour)}},
	}}, func(r task.Registrar) error {
		return render.Handle(r, func(ctx context.Context, _ string) (string, error) {
			r, _ := task.FromContext(ctx)
			m := r.Effective
			return fmt.Sprint(m.MaxRetries.Or(-1), " ", m.TimeLimit.Or(-1), " ", m.RetryDelay.Or(-1)), nil
		})
	})

	ctx := context.Background()
	show := func(opts ...task.Option) {
		future, err := render.Submit(ctx, p, "page", opts...)
		if err != nil {
			panic(err)
		}
		fmt.Println(future.Get(ctx))
	}
	show()
	show(task.WithMaxRetries(0), task.WithTimeLimit(time.Second))
	// Output:
	// 2 1m0s 1h0m0s <nil>
	// 0 1s 1h0m0s <nil>
}
