package membroker_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
)

func ExampleNew() {
	ctx := context.Background()
	b := membroker.New()
	defer b.Close(ctx)

	sub, err := b.Subscribe(ctx, "letters", broker.SubscribeOptions{Prefetch: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.Publish(ctx, "letters", &broker.Message{ID: "1", Body: []byte("dear reader")}); err != nil {
		fmt.Println(err)
		return
	}
	d, err := sub.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", d.Message().Body)
	fmt.Println(d.Ack(ctx))
	// Output:
	// dear reader
	// <nil>
}
