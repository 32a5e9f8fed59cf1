package control_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events/memevents"
)

// A node executes commands, and a client asks all nodes for their tasks. Usually a consumer is the
// node, see consumer.Config.Control; here it is a stand-in. With keys, only their holders can send
// commands.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bus := memevents.New(memevents.Config{})
	keys := &control.Keys{Active: "2026", ByID: map[string][]byte{"2026": []byte("thirty-two random bytes, please!")}}

	server, err := control.NewServer(control.Config{Bus: bus, Keys: keys, Allow: []control.Action{control.DoPing, control.DoScale}},
		&fake{id: "node-1", queues: []string{"mail"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()

	client, err := control.NewClient(control.ClientConfig{Bus: bus, Keys: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	for { // until the node has subscribed
		if _, err := client.Send(ctx, control.Command{Do: control.DoPing}, control.Wait{Replies: 1, Timeout: 100 * time.Millisecond}); err == nil {
			break
		}
	}
	replies, err := client.Send(ctx, control.Command{Do: control.DoScale, Queues: []string{"mail"}, Workers: 8}, control.Wait{Replies: 1})
	fmt.Println(replies[0].Node, replies[0].Queues, replies[0].Error, err)
	replies, err = client.Send(ctx, control.Command{Do: control.DoShutdown}, control.Wait{Replies: 1})
	fmt.Println(replies[0].Node, replies[0].Error, err)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// node-1 [mail]  <nil>
	// node-1 this node does not allow shutdown <nil>
	// <nil>
}
