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
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task may name another result store than the default, for example one with a longer retention.
// Both sides use the same name.
func ExampleConfig_stores() {
	archive := memresults.New(memresults.Config{})
	defer archive.Close(context.Background())
	stores := map[string]resultstore.ResultStore{"archive": archive}
	audit := task.New[string, string]("audit", task.WithResultStore("archive"))

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Stores: stores})
	s.Start(consumer.Config{Stores: stores}, func(r task.Registrar) error {
		return audit.Handle(r, func(_ context.Context, what string) (string, error) { return what + " is in order", nil })
	})

	ctx := context.Background()
	future, err := audit.Submit(ctx, p, "2026")
	if err != nil {
		panic(err)
	}
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
