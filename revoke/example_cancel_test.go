package revoke_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// A workflow is canceled while its first step runs. That step is told, and the second one never
// starts.
func ExampleRevoker_Cancel() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	must(err)
	load, store := task.New[string, int]("load"), task.New[int, string]("store")
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results})
	must(err)
	list, err := revoke.New(revoke.Config{Events: swarm.Revocations, NodeID: "node-1"})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: swarm.Broker, Results: swarm.Results, Revocations: list})
	must(err)
	begun := make(chan struct{})
	must(load.Handle(c, func(ctx context.Context, _ string) (int, error) {
		close(begun)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}))
	must(store.Handle(c, func(context.Context, int) (string, error) { return "stored", nil }))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	run, err := task.Chain(load, store).Submit(ctx, p, "customers", task.WithID("import-7"))
	must(err)
	<-begun
	revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: swarm.Revocations})
	must(err)
	fmt.Println(revoker.Cancel(ctx, revoke.Options{}, "import-7"))
	_, err = run.Get(ctx)
	fmt.Println(errors.Is(err, task.ErrRevoked), err)

	stop()
	must(<-ended)
	must(errors.Join(p.Close(ctx), list.Close(ctx), swarm.Close(ctx)))
	// Output:
	// [node-1] <nil>
	// true step load: swarmiji: task revoked
}
