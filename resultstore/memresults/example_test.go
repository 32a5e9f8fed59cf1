package memresults_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// A consumer saves a record. The store notifies the submitter, and every process that knows the id
// can load the record until it expires.
func Example() {
	ctx := context.Background()
	submitter := memresults.New(memresults.Config{})
	consumer := submitter.View() // like a store in another process
	defer submitter.Close(ctx)
	defer consumer.Close(ctx)

	news, err := submitter.Notify(ctx, "producer-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = consumer.Save(ctx, resultstore.Record{
		ID: "task-1", State: task.StateSucceeded, Deliveries: 1, ReplyTo: "producer-1",
		ContentType: "application/json", Result: []byte("3"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	told, err := news.Receive(ctx)
	fmt.Println(told.ID, told.State, err)
	found, err := submitter.Load(ctx, "task-1")
	fmt.Println(found.ID, string(found.Result), err)
	// Output:
	// task-1 succeeded <nil>
	// task-1 3 <nil>
}
