// Package swarmiji is the map of a library that distributes typed tasks over message brokers. The package itself is empty:
// programs import the packages below it.
//
// A task is a name with the types of its arguments and its result. A program that submits tasks and one that runs them
// share the definition:
//
//	var Add = task.New[Pair, int]("math.add")
//
// The producer gets a future for each task it submits:
//
//	future, err := Add.Submit(ctx, p, Pair{1, 2})
//	sum, err := future.Get(ctx)
//
// The consumer has the function:
//
//	err := Add.Handle(c, func(ctx context.Context, in Pair) (int, error) { return in.A + in.B, nil })
//
// # Where things are
//
//   - task: definitions, metadata, futures, the verdicts a handler may return. All that a program
//     needs that only defines tasks.
//   - producer: Submit and SubmitAll.
//   - consumer: Run, queues with workers, the graceful stop.
//   - middleware: what wraps handlers and submissions, such as retries with backoff, logs and metrics.
//   - when: times that come again, by cron, English phrases, repeats or windows of the week.
//   - schedule: tasks that run later or again and again, at the times of when.
//   - jobs: records of work in a database, which can be asked about, changed, repeated and answered.
//     Below it are jobs/jobstore, the records and the port to their stores; jobs/queue, limits and
//     throttlers; jobs/runner, which runs what is due.
//   - limit: how many tasks of a kind run at once, or in a time, over all processes.
//   - revoke: tasks that are not to run any more.
//   - deadletter: tasks that failed for good are found, run again, removed and kept in files.
//   - control: commands to running consumers.
//   - router: which task goes to which queue.
//   - deferral: the port for tasks that wait for answers, which jobs/deferrals implements.
//   - broker, resultstore, events, serializer: the ports.
//   - connect/amqpconnect, connect/natsconnect: where a server is, once for all of its adapters.
//   - capability: what an adapter can do besides its port, also behind wrappers.
//   - open: from a URL to adapters.
//
// The directories below ports, schedule, jobs and limit are adapters, named by technology and port,
// such as broker/membroker and broker/amqpbroker, and the suites that every adapter passes.
//
// A broker carries tasks; a result store carries results back; an event bus tells everybody what happens. Each is chosen
// on its own, so that any broker works with any store and any bus.
//
// # What is promised
//
// When Submit has returned nil the broker has confirmed the task, and it runs at least once, however often consumers,
// producers or brokers die; as long as nobody dies and no connection is lost it runs exactly once. A task may ask for
// at most once instead, with task.WithIdempotent(false). README.md has the promises in full, and DESIGN.md the reasons.
package swarmiji
