package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/workflow"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The tree of a failed workflow names the step that failed, and shows how far its groups came.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, results := membroker.New(), memresults.New(memresults.Config{})
	quiet := slog.New(slog.DiscardHandler)
	p, err := producer.New(producer.Config{Broker: b, Results: results, Logger: quiet})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Logger: quiet})
	must(err)
	fetch, sum, store := task.New[string, int]("fetch"), task.New[[]int, int]("sum"), task.New[int, string]("store")
	must(fetch.Handle(c, func(_ context.Context, url string) (int, error) { return len(url), nil }))
	must(sum.Handle(c, func(context.Context, []int) (int, error) { return 0, errors.New("too many") }))
	must(store.Handle(c, func(context.Context, int) (string, error) { return "stored", nil }))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	run, err := task.Chain3(task.Map(fetch), sum, store).Submit(ctx, p, []string{"a", "bb"}, task.WithID("sizes"))
	must(err)
	_, err = run.Get(ctx)
	fmt.Println(err)

	viewer, err := workflow.New(workflow.Config{Results: results})
	must(err)
	tree, err := viewer.Show(ctx, "sizes")
	must(err)
	for _, n := range tree.Steps {
		if g := n.Group; g != nil {
			fmt.Printf("group: %d of %d ended, %d failed\n", g.Done, g.Total, g.Failed)
			for _, member := range n.Children {
				fmt.Println("  ", member.Name, member.State)
			}
			continue
		}
		fmt.Println(n.Name, n.State)
	}
	fmt.Println("failed step:", tree.Failed.Name)

	stop()
	must(errors.Join(<-ended, p.Close(ctx)))
	// Output:
	// step sum: too many
	// group: 2 of 2 ended, 0 failed
	//    fetch succeeded
	//    fetch succeeded
	// sum failed
	// store failed
	// failed step: sum
}
