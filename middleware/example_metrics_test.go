package middleware_test

import (
	"context"
	"errors"
	"fmt"

	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Producer and consumer count in a registry of the program's, from which any exporter of go-metrics can take them.
func ExampleNewMetrics() {
	registry := metrics.NewRegistry()
	m := middleware.NewMetrics(registry)
	half := task.New[int, int]("half")

	p, c, run := inMemory(producer.Config{Metrics: m}, consumer.Config{Metrics: m})
	must(half.Handle(c, func(_ context.Context, n int) (int, error) {
		if n%2 != 0 {
			return 0, errors.New("odd")
		}
		return n / 2, nil
	}))
	done := run()

	ctx, cancel := soon()
	defer cancel()
	futures, err := half.SubmitAll(ctx, p, []int{1, 2, 4})
	must(err)
	for _, f := range futures {
		<-f.Done()
	}
	done() // what is counted after the results, is counted now
	for _, name := range []string{"sent", "received", "succeeded", "failed", "active"} {
		fmt.Println(name, registry.Get("swarmiji."+name).(metrics.Counter).Count())
	}
	fmt.Println("runs measured:", m.Runtime.Count())
	// Output:
	// sent 3
	// received 3
	// succeeded 2
	// failed 1
	// active 0
	// runs measured: 3
}
