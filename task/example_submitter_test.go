package task_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// outbox is a Submitter for tests that stores the calls.
type outbox struct{ calls []task.Call }

func (o *outbox) Submit(_ context.Context, c task.Call) (task.Pending, error) {
	o.calls = append(o.calls, c)
	return nil, nil
}

// Code that submits tasks takes a Submitter, so that its tests need no producer.
func ExampleSubmitter() {
	welcome := task.New[string, bool]("mail.welcome")
	signUp := func(ctx context.Context, s task.Submitter, user string) error {
		_, err := welcome.Submit(ctx, s, user, task.WithMaxRetries(10))
		return err
	}

	var o outbox
	if err := signUp(context.Background(), &o, "ada"); err != nil {
		panic(err)
	}
	for _, c := range o.calls {
		fmt.Println(c.Name, c.Args, c.Meta.MaxRetries.Or(0))
	}
	// Output: mail.welcome ada 10
}
