// Package jobs keeps work as records in a database. A task (package task) is a message that is gone
// when it has run. A job is a record that stays, and that a program can query, change, repeat and
// retry. Jobs may form a sequence, have children, and wait for the limit of a queue or for windows
// of time. An answer from outside may end a job.
//
// docs/jobs.md has the model, docs/internals/jobs.md the inside.
//
// # The parts
//
//   - [Service] holds the rules of a job's life. Programs use it.
//   - Package jobstore has the records, [Job] first, and the port to the databases that keep them:
//     memjobs, sqljobs (SQLite, PostgreSQL).
//   - Package runner runs due jobs, with the same handlers as a consumer.
//   - Package queue decides which jobs of a queue start.
//   - Package deferrals keeps tasks that wait for answers in the same stores.
//
// # Map
//
//   - records.go: the names of package jobstore
//   - service.go: New, Close, Stats; query.go, update.go: reads and changes
//   - create.go, create_shared.go, spec_queue.go, unique.go: how jobs are made
//   - get.go, lease.go, renew.go: claims and their leases; run_id.go: the id of a run's task
//   - finish.go, retry.go, again.go, postpone.go, delete.go, withdraw.go: how runs and jobs end
//   - keep.go, purge.go: the retention of jobs that are over
//   - repeat.go, children.go, sequence.go: repeats, parents, turns; life_rules.go: what a change
//     concerns besides its job
//   - await.go, answer.go, answer_early.go, answer_task.go: answers from outside
//   - conditioned.go, prepared.go: jobs of tasks with conditions
//   - explain.go, explain_queue.go: why a job does not run
//   - internal/rules: what may become of one job; internal/txn: transactions, locks, group commit;
//     internal/waitlist: callers that wait for jobs; internal/line: the line of a queue;
//     internal/page: how many jobs are read at a time
package jobs
