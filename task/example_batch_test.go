package task_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// One call of the handler stores up to 100 readings, in one statement of a database. Here the third
// task fills the batch, so that the call begins at once. A reading that does not fit fails alone.
func ExampleTask_HandleBatch() {
	type reading struct {
		Sensor  string
		Celsius float64
	}
	store := task.New[reading, int]("store")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{
		Queues: map[string]consumer.QueueConfig{router.DefaultQueue: {Workers: 6}}, // at least Max
	}, func(r task.Registrar) error {
		return store.HandleBatch(r, task.BatchOptions{Max: 3}, func(ctx context.Context, batch []*task.BatchItem[reading, int]) error {
			var fit []*task.BatchItem[reading, int]
			for _, item := range batch {
				if item.Args.Celsius < -273.15 {
					item.Return(0, errors.New("below absolute zero"))
					continue
				}
				fit = append(fit, item)
			}
			if err := insert(ctx, len(fit)); err != nil {
				return err // each task without an error of its own is retried, alone
			}
			for _, item := range fit {
				item.Return(len(fit), nil)
			}
			return nil
		})
	})

	ctx := context.Background()
	futures, err := store.SubmitAll(ctx, s, []reading{{"roof", 21.5}, {"cellar", 12}, {"broken", -999}})
	if err != nil {
		panic(err)
	}
	for _, f := range futures {
		fmt.Println(f.Get(ctx))
	}
	// Output:
	// 2 <nil>
	// 2 <nil>
	// 0 below absolute zero
}

// insert stands for one statement that inserts n rows.
func insert(context.Context, int) error { return nil }
