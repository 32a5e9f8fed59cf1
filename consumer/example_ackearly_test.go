package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task is acknowledged after it ran, so that it runs again if its consumer dies: at least once. A
// task that must not run twice is acknowledged before it runs: at most once.
func Example_ackEarly() {
	b := membroker.New()
	held := func(ctx context.Context, _ string) (int, error) {
		s, err := b.Stats(ctx, "default")
		return s.Held, err // messages that the broker would deliver again if this process died now
	}
	backup := task.New[string, int]("backup")
	launch := task.New[string, int]("launch", task.WithIdempotent(false))

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Broker: b})
	s.Start(consumer.Config{Broker: b}, func(r task.Registrar) error {
		return errors.Join(
			backup.Handle(r, held),
			launch.Handle(r, held),
		)
	})

	ctx := context.Background()
	late, err := backup.Submit(ctx, p, "disk")
	if err != nil {
		panic(err)
	}
	n, err := late.Get(ctx)
	fmt.Println("held during backup:", n, err)

	for n > 0 { // the acknowledgement follows the result
		if n, err = held(ctx, ""); err != nil {
			panic(err)
		}
	}
	early, err := launch.Submit(ctx, p, "rocket")
	if err != nil {
		panic(err)
	}
	n, err = early.Get(ctx)
	fmt.Println("held during launch:", n, err)
	// Output:
	// held during backup: 1 <nil>
	// held during launch: 0 <nil>
}
