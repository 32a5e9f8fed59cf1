package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Retry retries a handler's ordinary errors. Its configuration selects the errors and the delays;
// the task's MaxRetries limits their number. It may wrap all handlers (consumer.Config.Middleware)
// or, as here, one.
func ExampleRetry() {
	retry := middleware.Retry(middleware.RetryConfig{
		On:      func(err error) bool { return !errors.Is(err, fs.ErrPermission) },
		Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Millisecond, Max: 100 * time.Millisecond, Jitter: true},
	})
	read := task.New[string, string]("file.read", task.WithMaxRetries(5))

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return read.Handle(r, func(ctx context.Context, name string) (string, error) {
			r, _ := task.FromContext(ctx)
			switch {
			case name == "secret":
				return "", fs.ErrPermission
			case r.Retries < 3:
				return "", fs.ErrNotExist // not there yet
			}
			return fmt.Sprintf("read after %d retries", r.Retries), nil
		}, retry)
	})

	ctx := context.Background()
	for _, name := range []string{"report", "secret"} {
		future, err := read.Submit(ctx, s, name)
		if err != nil {
			panic(err)
		}
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "read after 3 retries" <nil>
	// "" permission denied
}
