package consumer_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task is acknowledged after its run, so that it runs again if its consumer dies: at least once. One that must not run
// twice is acknowledged before its run: at most once.
func Example_ackEarly() {
	b := membroker.New()
	held := func(ctx context.Context, _ string) (int, error) {
		s, err := b.Stats(ctx, "default")
		return s.Held, err // what the broker would hand out again if this process died now
	}
	backup := task.New[string, int]("backup")
	launch := task.New[string, int]("launch", task.WithIdempotent(false))

	p, c, run := inMemory(producer.Config{Broker: b}, consumer.Config{Broker: b})
	must(backup.Handle(c, held))
	must(launch.Handle(c, held))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	late, err := backup.Submit(ctx, p, "disk")
	must(err)
	n, err := late.Get(ctx)
	fmt.Println("held during backup:", n, err)

	settled(ctx, b) // the acknowledgement follows the result
	early, err := launch.Submit(ctx, p, "rocket")
	must(err)
	n, err = early.Get(ctx)
	fmt.Println("held during launch:", n, err)
	// Output:
	// held during backup: 1 <nil>
	// held during launch: 0 <nil>
}
