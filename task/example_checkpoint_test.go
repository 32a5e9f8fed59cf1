package task_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task charges an account and then ships the goods. The first attempt fails between the two. The
// second one finds the receipt and does not charge again.
func ExampleCheckpoint() {
	type receipt struct{ Number int }
	order := task.New[string, string]("order", task.WithMaxRetries(3), task.WithRetryDelay(0))
	charges, shipments := 0, 0
	charge := func(context.Context) (receipt, error) {
		charges++
		return receipt{7}, nil
	}
	ship := func(ctx context.Context) (string, error) {
		if shipments++; shipments == 1 {
			return "", task.Retry(errors.New("no lorry is free"))
		}
		return "parcel 12", nil
	}

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return order.Handle(r, func(ctx context.Context, account string) (string, error) {
			paid, err := task.Checkpoint(ctx, "charge", charge)
			if err != nil {
				return "", err
			}
			parcel, err := task.Checkpoint(ctx, "ship", ship)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("receipt %d, %s", paid.Number, parcel), nil
		})
	})

	ctx := context.Background()
	future, err := order.Submit(ctx, s, "account 3")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	fmt.Println(charges, "charge,", shipments, "shipments")
	// Output:
	// receipt 7, parcel 12 <nil>
	// 1 charge, 2 shipments
}

// A task imports many rows and stores after each hundred how far it is. The second attempt
// continues there.
func ExampleSave() {
	imports := task.New[int, string]("import", task.WithMaxRetries(3), task.WithRetryDelay(0))
	failed := false
	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return imports.Handle(r, func(ctx context.Context, rows int) (string, error) {
			from, _, err := task.Load[int](ctx, "row")
			if err != nil {
				return "", err
			}
			for row := from; row < rows; row += 100 {
				if row == 300 && !failed {
					failed = true
					return "", task.Retry(errors.New("the connection is lost"))
				}
				if err := task.Save(ctx, "row", row+100); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("rows %d to %d", from, rows), nil
		})
	})

	ctx := context.Background()
	future, err := imports.Submit(ctx, s, 500)
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output: rows 300 to 500 <nil>
}
