package sqlresults_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/sqlresults"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
)

// A consumer saves a record. The store notifies the submitter, and every process that knows the id
// can load the record until it expires. The records are in a file, which each process opens itself.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "results")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(filepath.Join(dir, "app.db"), sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	at := sqlresults.Config{DB: db}
	submitter, err := sqlresults.New(at)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer submitter.Close(ctx)
	consumer, err := sqlresults.New(at)
	if err != nil {
		fmt.Println(err)
		return
	}
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
