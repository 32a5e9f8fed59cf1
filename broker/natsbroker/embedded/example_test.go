package embedded_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
)

// This example runs a server in a directory, used from this process. The NATS adapters take it as
// their InProcess; here a plain client uses it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	srv, err := embedded.Open(ctx, dir, embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close(ctx)

	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}}); err != nil {
		fmt.Println(err)
		return
	}
	ack, err := js.Publish(ctx, "orders.new", []byte("3 apples"))
	fmt.Println(ack.Stream, ack.Sequence, err)
	// Output:
	// ORDERS 1 <nil>
}

// In this example a second process on the same directory joins the first one's server.
func ExampleAddress() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	// in the first process
	srv, err := embedded.Open(ctx, dir, embedded.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close(ctx)

	url, err := embedded.Address(dir) // in the second process
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := nats.Connect(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Println(conn.IsConnected())
	// Output:
	// true
}
