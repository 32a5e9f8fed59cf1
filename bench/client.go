package main

import "context"

// client does the work of the workloads: with Swarmiji, or with the bare client.
type client interface {
	// declare makes the queue.
	declare(ctx context.Context) error
	// submit sends one task and waits for its confirmation.
	submit(ctx context.Context) error
	// submitAll sends n tasks, pipelined, and returns when all of them are confirmed.
	submitAll(ctx context.Context, n int) error
	// call sends one task and waits for its result. Something must serve.
	call(ctx context.Context) error
	// serve consumes until ctx ends; all that was seen is then settled. seen is called for each task, from any goroutine,
	// with its argument.
	serve(ctx context.Context, seen func(argument []byte)) error
	// left is how many tasks wait in the queue.
	left(ctx context.Context) (int, error)
	// remove deletes the queues.
	remove(ctx context.Context) error
	// close ends all connections.
	close(ctx context.Context) error
}

// dial makes the client that the flags ask for.
func dial(ctx context.Context, cfg *config) (client, error) {
	if cfg.Raw {
		return dialRaw(ctx, cfg)
	}
	return dialSwarm(ctx, cfg)
}
