package redisresults_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/redisresults"
	"github.com/swarmiji/swarmiji/task"
)

// A consumer saves a record. The store notifies the submitter, and every process that knows the id
// can load the record until it expires. The example needs a server.
func Example() {
	ctx := context.Background()
	store, err := redisresults.New(redisresults.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
	})
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
	fmt.Println(told.ID, told.State, err) // task-1 succeeded <nil>
	found, err := store.Load(ctx, "task-1")
	fmt.Println(found.ID, string(found.Result), err) // task-1 3 <nil>
}

// New checks everything that needs no server and returns all problems in one error.
func ExampleNew() {
	_, err := redisresults.New(redisresults.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
		Namespace: "a.b",
		Buffer:    -1,
	})
	fmt.Println(err)
	// Output:
	// redisresults: Buffer is negative
	// redisresults: Namespace must be 1 to 64 letters, digits, '_' and '-', first a letter or digit
}
