// Package swarmiji is the overview of a library that distributes typed tasks over message brokers.
// The package itself is empty: programs import the packages below it.
//
// A task is a name with the types of its arguments and its result. Producers and
// consumers share the definition:
//
//	var Add = task.New[Pair, int]("math.add")
//
// The producer gets a future for each task that it submits:
//
//	future, err := Add.Submit(ctx, p, Pair{1, 2})
//	sum, err := future.Get(ctx)
//
// The consumer has the function:
//
//	err := Add.Handle(c, func(ctx context.Context, in Pair) (int, error) { return in.A + in.B, nil })
//
// # Packages
//
//   - task: definitions, metadata, futures, and the errors with which handlers ask for retries. A
//     program that only defines tasks needs no other package.
//   - producer: Submit and SubmitAll.
//   - consumer: Run, queues with workers, the graceful stop.
//   - middleware: wrappers of handlers and submissions, such as retries with backoff, logs and
//     metrics. Below it, middleware/gometrics and middleware/prom show the metrics, and
//     middleware/tracing makes traces.
//   - when: recurring times by cron, English phrases, repeats or windows of the week.
//   - schedule: tasks that run later or repeatedly, at the times of when.
//   - jobs: records of work in a database, which can be queried, changed, repeated and answered.
//     Below it are jobs/jobstore, the records and the port to their stores; jobs/queue, limits and
//     throttlers; jobs/runner, which runs due jobs.
//   - limit: limits of running tasks and of rates over all processes.
//   - revoke: revocations of tasks and workflows.
//   - deadletter: lists, requeues, removes and exports tasks that failed for good, and retries
//     workflows.
//   - workflow: shows the steps of a submitted workflow.
//   - health: whether a process is live and ready, over HTTP.
//   - control: commands to running consumers.
//   - inspect: shows a running system, explains why tasks wait, and changes it, with an audit log.
//   - dashboard: web pages for inspect, and inspect over HTTP.
//   - router: the queues of tasks.
//   - deferral: the port for tasks that wait for answers, which jobs/deferrals implements.
//   - broker, resultstore, events, serializer: the ports.
//   - connect/amqpconnect, connect/natsconnect: the connection settings that all adapters of a
//     server share.
//   - sqldb: the handle of a SQL database that its adapters share, from sqldb/postgres or
//     sqldb/sqlite.
//   - tx: your own database transactions, for submitting and settling tasks in them. tx/sqltx and
//     tx/pgxtx convert those of database/sql and pgx.
//   - settings: stored operations, such as pauses and limits of queues and tasks, which consumers
//     follow.
//   - outbox: tasks that are stored in your own database transactions and sent to any broker.
//   - history: what happened to tasks: a recorder of events, queries, timelines and counts.
//   - capability: optional interfaces of adapters, also behind wrappers.
//   - tasktest: tests of programs with tasks, without a server and without waiting.
//   - celery: producers and consumers for the queues and results of Celery, in Python. Below it are
//     celery/wire, the messages, and the adapters.
//   - open: adapters from a URL. Below it, import a package per kind of server, or open/all.
//
// The directories below the ports, schedule, jobs, limit, settings, history and outbox are
// adapters, named by technology and port, such as broker/membroker and broker/amqpbroker. Beside
// them are the test suites that every adapter passes.
//
// A broker carries tasks, a result store carries results back, and an event bus reports what
// happens to tasks. Each is chosen separately: any broker works with any store and any bus.
//
// # Guarantees
//
// When Submit has returned nil, the broker has confirmed the task. It then runs at least once, even
// if consumers, producers or brokers die. Without failures it runs exactly once.
// task.WithIdempotent(false) selects at most once instead. README.md has all guarantees, and
// DESIGN.md the reasons.
package swarmiji
