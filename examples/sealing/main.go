// Sealing encrypts arguments and results on their way. Without the key no program can read, add or
// change a task: a task that is not sealed goes to the dead letters.
//
//	go run ./examples/sealing
//
// It needs no server and prints:
//
//	paid with 4111-1111
//	dead letter: serializer: not sealed: this consumer accepts only sealed tasks
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

var Pay = task.New[string, string]("demo.pay")

func pay(_ context.Context, card string) (string, error) { return "paid with " + card, nil }

func main() {
	ctx := context.Background()
	secret := make([]byte, 32) // a real program reads it from where it keeps its secrets
	_, _ = rand.Read(secret)
	keys, err := serializer.NewKeyRing(serializer.Key{ID: "2026-01", Secret: secret})
	check(err)
	wire := serializer.Wire{Sealer: keys} // the same for producers and consumers

	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{Wire: wire})
	check(err)
	c, err := swarm.Consumer(consumer.Config{Wire: wire, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(Pay.Handle(c, pay))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	receipt, err := Pay.Submit(ctx, p, "4111-1111")
	check(err)
	text, err := receipt.Get(ctx)
	check(err)
	fmt.Println(text)

	// An attacker reaches the broker and has no key.
	check(swarm.Broker.Publish(ctx, "default", &broker.Message{ID: "m-1", Body: []byte(`{"task": "demo.pay", "args": "0000-0000"}`)}))
	for dead := []broker.Dead(nil); len(dead) == 0; {
		dead, err = broker.ListDead(ctx, swarm.Broker, "default", 1)
		check(err)
		for _, letter := range dead {
			fmt.Println("dead letter:", letter.Reason)
		}
	}

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
