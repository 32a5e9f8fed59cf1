// Package jobs keeps work as records in a database. A program can ask about a job, change it while it
// runs, repeat it, retry it, put it in a sequence, give it children, hold it back by the limit of a
// queue or by windows of time, and end it by an answer from outside. A task (package task) is a
// message that is gone when it has run. A job is a record that stays to be asked about. docs/jobs.md
// has the model, docs/internals/jobs.md the inside.
//
// # The parts
//
//   - [Service] holds the rules of a job's life. Programs use it.
//   - Package jobstore has the records, [Job] first, and the port to the databases that keep them:
//     memjobs, sqljobs (SQLite, PostgreSQL).
//   - Package runner runs what is due, with handlers as a consumer has them.
//   - Package queue decides which jobs of a queue start.
//   - Package deferrals keeps tasks that wait for answers in the same stores.
//
// # Map
//
//   - records.go: the names of package jobstore
//   - service.go: New, Close, Stats; query.go, update.go: to look and to change
//   - create.go, create_shared.go, spec_queue.go, unique.go: how jobs are made
//   - get.go, lease.go, renew.go: hand-outs and their leases; run_id.go: which run of a job a task is
//   - finish.go, retry.go, again.go, postpone.go, delete.go, withdraw.go: how runs and jobs end
//   - keep.go, purge.go: what is kept of a job that is over, and for how long
//   - repeat.go, children.go, sequence.go: repeats, parents, turns; life_rules.go: what a change
//     concerns besides its job
//   - await.go, answer.go, answer_early.go, answer_task.go: answers from outside
//   - conditioned.go, prepared.go: jobs of tasks with conditions
//   - explain.go, explain_queue.go: why a job does not run
//   - internal/rules: what may become of one job; internal/txn: transactions, locks, group commit;
//     internal/waitlist: callers that wait for jobs; internal/line: the line of a queue
package jobs
