package main

import "context"

// client performs the operations of the workloads, with Swarmiji or with the bare client of the
// broker.
type client interface {
	// declare creates the queue.
	declare(ctx context.Context) error
	// submit sends one task and waits for its confirmation.
	submit(ctx context.Context) error
	// submitAll sends n tasks, pipelined, and returns when all of them are confirmed.
	submitAll(ctx context.Context, n int) error
	// call sends one task and waits for its result. Another goroutine or process must serve.
	call(ctx context.Context) error
	// serve consumes until ctx ends and then settles all tasks that it saw. It calls seen with the
	// argument of each task, from any goroutine.
	serve(ctx context.Context, seen func(argument []byte)) error
	// left returns the number of tasks that wait in the queue.
	left(ctx context.Context) (int, error)
	// remove deletes the queues.
	remove(ctx context.Context) error
	// close closes all connections.
	close(ctx context.Context) error
}

// dial makes the client that the flags select.
func dial(ctx context.Context, cfg *config) (client, error) {
	if cfg.Raw {
		return dialRaw(ctx, cfg)
	}
	return dialSwarm(ctx, cfg)
}
