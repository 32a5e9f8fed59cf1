package main

import (
	"context"
	"errors"
	"time"
)

// start calls run in a goroutine. The returned function cancels the context of run, waits until run
// returns, and returns its error.
func start(run func(context.Context) error) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// closing calls end with a timeout of 10 seconds, and joins its error to *err. Use it in a defer
// statement.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
