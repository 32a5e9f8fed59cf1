package natsresults_test

import (
	"context"
	"fmt"
	"os"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
	"github.com/swarmiji/swarmiji/task"
)

// A consumer saves a record. The store notifies the submitter, and every process that knows the id
// can load the record until it expires. The server runs in this process; set URLs to use another
// one.
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
	store, err := natsresults.New(natsresults.Config{Connect: natsconnect.Config{InProcess: srv}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close(ctx)

	news, err := store.Notify(ctx, "producer-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = store.Save(ctx, resultstore.Record{
		ID: "task-1", State: task.StateSucceeded, Deliveries: 1, ReplyTo: "producer-1",
		ContentType: "application/json", Result: []byte("3"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	told, err := news.Receive(ctx)
	fmt.Println(told.ID, told.State, err)
	found, err := store.Load(ctx, "task-1")
	fmt.Println(found.ID, string(found.Result), err)
	// Output:
	// task-1 succeeded <nil>
	// task-1 3 <nil>
}
