package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// A task may name another result store than the default one, such as one that keeps results for longer. Both sides know
// it by the same name.
func ExampleConfig_stores() {
	archive := memresults.New(memresults.Config{})
	defer archive.Close(context.Background())
	stores := map[string]resultstore.ResultStore{"archive": archive}
	audit := task.New[string, string]("audit", task.WithResultStore("archive"))

	p, c, run := inMemory(producer.Config{Stores: stores}, consumer.Config{Stores: stores})
	must(audit.Handle(c, func(_ context.Context, what string) (string, error) { return what + " is in order", nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	future, err := audit.Submit(ctx, p, "2026")
	must(err)
	fmt.Println(future.Get(ctx))
	record, err := archive.Load(ctx, future.ID())
	fmt.Println(record.Name, record.State, err)

	_, err = audit.Submit(ctx, p, "2027", task.WithResultStore("attic"))
	fmt.Println("refused:", errors.Is(err, task.ErrBadMetadata))
	// Output:
	// 2026 is in order <nil>
	// audit succeeded <nil>
	// refused: true
}
