// Package jobs keeps work as records in a database. A job is found by its id, asked about, updated while it runs, repeated, retried, put in a sequence
// with others, made a parent of others, held back by the limit of a queue or by windows of time, and ended by an answer from outside. A task (package task) is a message, gone when it has been
// run; a job is there for who wants to know. docs/jobs.md has the model.
//
// # The parts
//
//   - [Job] is the record, [Store] the port to the databases that keep it: memjobs, sqljobs (SQLite, PostgreSQL).
//   - [Service] holds the rules of a job's life. It is what programs use.
//   - [Runner] runs what is due, with handlers as a consumer has them: in place, or dispatched as tasks ([Dispatch]). With a [Queue] it runs the jobs of that queue, as the limit and the
//     [Throttler] let it.
//   - [Type] is a kind of job that asks a service for something and is answered later, by [Service.Complete] or [Service.Reject].
//
// # Map
//
// The record and its rules:
//
//   - job.go, store.go, errors.go: the nouns, the port, what can go wrong; check.go: what is refused before anything is asked
//   - service.go: New, Close, Stats; query.go, update.go: to look and to change
//   - life.go: a transaction, what it has to lock and in which order; together.go: transactions that many share
//   - create.go, spec_queue.go, unique.go, keys.go: how jobs are made, and of what there may be only one
//   - get.go, lease.go: the hand-out; wait.go, lookout.go: those who wait for one, and who looks out for them
//   - finish.go, retry.go, delete.go, withdraw.go: the ends; keep.go, purge.go: what is kept when it is over, and for how long
//   - repeat.go, data.go, children.go, sequence.go, window.go: repeats, what is noted in data, parents, turns, windows
//   - await.go, answer.go: answers from outside
//
// Queues:
//
//   - queue.go: what a queue is, its limit and its line; throttler.go, shares.go: who else has a say
//   - lead.go, lead_next.go: who serves a queue, and when he looks at it; look.go: one look, which is one transaction; roster.go: what runs, for throttlers
//   - explain.go, explain_queue.go: why a job does not run
//
// Runners:
//
//   - runner.go, runner_config.go, run.go: what programs see, and handlers; type.go: jobs that are answered
//   - runner_round.go: one Run: what is held, leases, the stop; runner_queue.go: where its jobs come from; renew.go, postpone.go, again.go: what only it asks of the service
//   - runner_place.go, runner_answer.go: attempts in place, answers and timeouts
//   - dispatch.go, runner_submit.go, runner_record.go: jobs as tasks; prepared.go, runner_prepared.go: tasks that a producer has made jobs of
package jobs
