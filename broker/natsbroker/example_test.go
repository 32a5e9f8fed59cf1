package natsbroker_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
)

// This example uses a queue with two levels on a server within the process. With Config.URLs in
// place of InProcess the server is elsewhere.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "swarmiji")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	srv, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = srv.Close(ctx) }()

	b, err := natsbroker.New(natsbroker.Config{Connect: natsconnect.Config{InProcess: srv}, Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = b.Close(ctx) }()
	if err := b.Declare(ctx, broker.Queue{Name: "orders", Levels: []int{10, 100}}); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range []*broker.Message{{ID: "1", Priority: 100, Body: []byte("normal")}, {ID: "2", Priority: 5, Body: []byte("urgent")}} {
		if err := b.Publish(ctx, "orders", m); err != nil {
			fmt.Println(err)
			return
		}
	}
	s, err := b.Subscribe(ctx, "orders", broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		d, err := s.Receive(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", d.Message().Body)
		_ = d.Ack(ctx)
	}
	// Output:
	// urgent
	// normal
}
