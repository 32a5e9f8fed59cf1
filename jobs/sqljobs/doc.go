// Package sqljobs keeps jobs in a SQL database: in a SQLite file, which any number of processes of one machine share, or in PostgreSQL.
// The tables are made when a store is first used, and brought up to date by newer versions.
//
// There are six tables, and another one that keeps their version:
//
//   - swarmiji_jobs: a row for each job. It may be read with any tool while programs use it.
//   - swarmiji_job_message: the task of each job that was made of a task with conditions.
//   - swarmiji_deferral: a row for each task that waits for its answer, and for those that did a day ago.
//   - swarmiji_early_answer: a row for each answer that came before its request was stored.
//   - swarmiji_queue_lease: a row for each queue that was ever served.
//   - swarmiji_job_name: the names that jobs have, for patterns. Those whose jobs are gone are removed as new names come.
//
// Times are microseconds since 1970. The clock is the database's: PostgreSQL's server, or the machine that the file is on. What is
// confirmed is on the disk: PostgreSQL's synchronous_commit, and synchronous=FULL of SQLite, where transactions that come at the same moment
// share one commit.
//
// What is due is found by indexes in the order in which it is handed out, one priority after the other, so that jobs that are
// not due are not walked. Jobs of a pattern are looked for among the first that are due, and else by the names that match it. Jobs of queues have a
// Due of their own, queue_due, and indexes of their own: they are in nobody else's way. To find jobs by their state alone reads all of them.
//
// Other processes' jobs are heard of by LISTEN on PostgreSQL; a file is looked at a hundred times a second while somebody watches.
package sqljobs
