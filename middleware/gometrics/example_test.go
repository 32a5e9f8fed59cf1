package gometrics_test

import (
	"context"
	"errors"
	"fmt"

	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Producer and consumer count in a registry of the program. Any exporter of go-metrics can read it.
func ExampleNewMetrics() {
	registry := metrics.NewRegistry()
	m := gometrics.NewMetrics(registry)
	half := task.New[int, int]("half")

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Metrics: m})
	s.Start(consumer.Config{Metrics: m}, func(r task.Registrar) error {
		return half.Handle(r, func(_ context.Context, n int) (int, error) {
			if n%2 != 0 {
				return 0, errors.New("odd")
			}
			return n / 2, nil
		})
	})

	ctx := context.Background()
	futures, err := half.SubmitAll(ctx, p, []int{1, 2, 4})
	if err != nil {
		panic(err)
	}
	for _, f := range futures {
		<-f.Done()
	}
	s.Close() // Close waits for the counts that come after the results
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
