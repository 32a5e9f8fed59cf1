package revoke_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// A task is revoked while no consumer runs. A consumer that starts later reads the revocation
// before its first task.
func Example() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	must(err)
	mail := task.New[string, string]("mail")

	p, err := producer.New(producer.Config{Broker: swarm.Broker, Results: swarm.Results})
	must(err)
	first, err := mail.Submit(ctx, p, "ada")
	must(err)
	second, err := mail.Submit(ctx, p, "bob")
	must(err)

	revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: swarm.Revocations})
	must(err)
	outcomes, err := revoker.Revoke(ctx, revoke.Options{}, first.ID())
	fmt.Println(outcomes, errors.Is(err, revoke.ErrUnheard)) // stored, but no consumer listens yet

	list, err := revoke.New(revoke.Config{Events: swarm.Revocations})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: swarm.Broker, Results: swarm.Results, Revocations: list})
	must(err)
	must(mail.Handle(c, func(_ context.Context, to string) (string, error) { return "sent to " + to, nil }))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	_, err = first.Get(ctx)
	fmt.Println(errors.Is(err, task.ErrRevoked), err)
	fmt.Println(second.Get(ctx))
	stop()
	must(<-ended)
	must(errors.Join(p.Close(ctx), list.Close(ctx), swarm.Close(ctx)))
	// Output:
	// [noted] true
	// true swarmiji: task revoked
	// sent to bob <nil>
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
