// Package jobs stores work as records in a database. A task (package task) is a message, which is
// gone when its handler has run. A job is a record that stays. Programs can query, change, repeat
// and retry it.
//
// Jobs can form a sequence and can have children. They can wait for the limit of a queue, for
// windows of time, and for answers that come from outside.
//
// docs/jobs.md explains the model, docs/internals/jobs.md the implementation and its source files.
//
// # Terms
//
//   - A run is one due time of a job, from its first claim to its end. It has one or more attempts.
//   - An attempt is the work of one worker on a run. Its fencing token ([Row].Token) rejects late
//     writers.
//   - A claim gives a due job to a worker. A lease limits the time of the claim.
//   - A job is over when its state is FINISHED, FAILED or CANCELLED ([State.Over]). All other jobs
//     are open.
//   - An answer comes from outside, for a job that sent a request. Name and Key of the job identify
//     it.
//   - An early answer came before its request was stored. The job claims it when it awaits it.
//   - A deferral is a task, not a job, that waits for an answer (package deferrals).
//   - A sequence is the jobs with one SequenceKey. Its current job is QUEUED, RUNQUEUED, RUNNING or
//     PAUSED; its other open jobs are WAITING.
//   - A pending child is QUEUED, RUNQUEUED, RUNNING or PAUSED. A PAUSED parent waits for it.
//   - The windows of a job are the times at which it may start ([when.Windows]).
//   - The leader of a queue is the process that claims its jobs. It admits a job, which lets it
//     start, as the queue's limit and throttler allow (package queue).
//   - A task with conditions waits as a job until its queue, sequence and windows let it start
//     ([task.Conditions]).
//
// # Packages
//
//   - [Service] applies the rules of a job's life. Programs use it.
//   - Package jobstore contains the records, [Job] first, and the port to the databases. Its
//     adapters are memjobs and sqljobs (SQLite, PostgreSQL).
//   - Package runner runs due jobs with the same handlers as a consumer.
//   - Package queue decides which jobs of a queue start.
//   - Package deferrals stores tasks that wait for answers in the same databases.
package jobs
