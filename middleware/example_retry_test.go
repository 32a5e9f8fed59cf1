package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// Retry makes retries of a handler's ordinary errors: which ones, and after how long, is configured here; how often, by the
// task's MaxRetries. It may wrap all handlers (consumer.Config.Middleware) or, as here, one.
func ExampleRetry() {
	retry := middleware.Retry(middleware.RetryConfig{
		On:      func(err error) bool { return !errors.Is(err, fs.ErrPermission) },
		Backoff: task.Backoff{Strategy: task.BackoffExponential, Base: time.Millisecond, Max: 100 * time.Millisecond, Jitter: true},
	})
	read := task.New[string, string]("file.read", task.WithMaxRetries(5))

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(read.Handle(c, func(ctx context.Context, name string) (string, error) {
		r, _ := task.FromContext(ctx)
		switch {
		case name == "secret":
			return "", fs.ErrPermission
		case r.Retries < 3:
			return "", fs.ErrNotExist // not there yet
		}
		return fmt.Sprintf("read after %d retries", r.Retries), nil
	}, retry))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	for _, name := range []string{"report", "secret"} {
		future, err := read.Submit(ctx, p, name)
		must(err)
		text, err := future.Get(ctx)
		fmt.Printf("%q %v\n", text, err)
	}
	// Output:
	// "read after 3 retries" <nil>
	// "" permission denied
}
