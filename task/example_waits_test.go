package task_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task welcomes a user, sleeps, and sends a hint. Nothing but its message in the queue remains
// while it sleeps. Real programs sleep for days.
func ExampleSleep() {
	welcome := task.New[string, string]("welcome")
	mail := func(text string) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) {
			fmt.Println("mail:", text)
			return true, nil
		}
	}
	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return welcome.Handle(r, func(ctx context.Context, user string) (string, error) {
			if _, err := task.Checkpoint(ctx, "welcome", mail("welcome "+user)); err != nil {
				return "", err
			}
			if err := task.Sleep(ctx, "a while", 10*time.Millisecond); err != nil {
				return "", err
			}
			_, err := task.Checkpoint(ctx, "hint", mail("a hint for "+user))
			return "done", err
		})
	})

	ctx := context.Background()
	future, err := welcome.Submit(ctx, s, "Ada")
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output:
	// mail: welcome Ada
	// mail: a hint for Ada
	// done <nil>
}

// A task asks for an approval and continues when the answer comes, in any process. Until then it
// holds no worker. A refusal is an error that the handler can tell from others.
func ExampleAwait() {
	store, err := memjobs.New(memjobs.Config{}) // in real programs a database, see jobs/sqljobs
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	waiting, err := deferrals.New(deferrals.Config{Jobs: service})
	if err != nil {
		panic(err)
	}
	asked := make(chan string, 2)
	order := task.New[string, string]("order")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{Deferrals: waiting}, func(r task.Registrar) error {
		return order.Handle(r, func(ctx context.Context, number string) (string, error) {
			key := "order " + number
			ask := func(context.Context) error {
				asked <- key // the request
				return nil
			}
			name, err := task.Await[string](ctx, "approval", key, task.Requesting(ask))
			if errors.Is(err, task.ErrRejected) {
				return "refused: " + err.Error(), nil
			}
			if err != nil {
				return "", err
			}
			return "approved by " + name, nil
		})
	})

	ctx := context.Background()
	approved, err := order.Submit(ctx, s, "7")
	if err != nil {
		panic(err)
	}
	if _, err := service.Complete(ctx, "order", <-asked, "Grace"); err != nil {
		panic(err)
	}
	fmt.Println(approved.Get(ctx))
	refused, err := order.Submit(ctx, s, "8")
	if err != nil {
		panic(err)
	}
	if _, err := service.Reject(ctx, "order", <-asked, errors.New("too expensive")); err != nil {
		panic(err)
	}
	fmt.Println(refused.Get(ctx))

	s.Close()
	if err := errors.Join(service.Close(ctx), store.Close(ctx)); err != nil {
		panic(err)
	}
	// Output:
	// approved by Grace <nil>
	// refused: too expensive <nil>
}
