package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Hooks are called at events of a task or of the consumer. A before-hook may veto by an error: here
// one stops a customer's tasks. Hooks of all tasks come before hooks of single ones. After-hooks
// come in the reverse order.
func ExampleHooks() {
	ship := task.New[string, string]("ship")
	outcomes := middleware.Hooks{
		OnSuccess: func(_ context.Context, r *task.Request, result any) { fmt.Println(r.Name, "succeeded:", result) },
		OnFailure: func(_ context.Context, r *task.Request, err error) { fmt.Println(r.Name, "failed:", err) },
	}
	onlyOpen := middleware.Hooks{
		BeforePerform: func(_ context.Context, r *task.Request) error {
			if r.Headers["customer"] == "closed" {
				return errors.New("the account is closed")
			}
			return nil
		},
	}

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{Hooks: consumer.Hooks{
		BeforeStart:    func(context.Context) error { fmt.Println("starting"); return nil },
		BeforeShutdown: func(context.Context) { fmt.Println("stopping") },
		Tasks: middleware.HookSet{
			Global: []middleware.Hooks{outcomes},
			Tasks:  map[string][]middleware.Hooks{ship.Name(): {onlyOpen}},
		},
	}}, func(r task.Registrar) error {
		return ship.Handle(r, func(_ context.Context, what string) (string, error) { return what + " is on its way", nil })
	})

	ctx := context.Background()
	for _, customer := range []string{"open", "closed"} {
		future, err := ship.Submit(ctx, s, "a book", task.WithHeader("customer", customer))
		if err != nil {
			panic(err)
		}
		_, _ = future.Get(ctx) // the hooks tell
	}
	// Output:
	// starting
	// ship succeeded: a book is on its way
	// ship failed: the account is closed
	// stopping
}
