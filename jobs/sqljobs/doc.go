// Package sqljobs stores jobs in a SQL database: SQLite or PostgreSQL. Any number of processes on
// one machine can share a SQLite file. A new store creates the tables on first use. A newer version
// migrates the tables that an older version created.
//
// The store has six tables, and a seventh table for the version of the schema:
//
//   - swarmiji_jobs: one row per job. Any tool may read it while programs use it.
//   - swarmiji_job_message: the task of each job that was made from a task with conditions.
//   - swarmiji_deferral: one row per deferred task that waits for its answer. A row stays for one
//     day after the answer.
//   - swarmiji_early_answer: one row per early answer: an answer that arrived before its request
//     was stored.
//   - swarmiji_queue_lease: one row per queue that was ever served.
//   - swarmiji_job_name: the names of jobs, to match patterns against. Names without jobs are
//     removed as new names are added.
//
// Times are microseconds since 1970. The clock is the clock of the PostgreSQL server, or of the
// machine that holds the SQLite file. Confirmed changes are on the disk: PostgreSQL uses its
// synchronous_commit, SQLite uses synchronous=FULL. On SQLite, transactions that run at the same
// moment share one commit.
//
// Due jobs are found through indexes in the order in which they are claimed, one priority after the
// other. Jobs that are not due are not scanned. For a pattern, the store first searches the first
// due jobs, then the names that match the pattern. Jobs of queues have their own due column,
// queue_due, and their own indexes, so they do not slow down other searches. A search by state
// alone reads all jobs.
//
// On PostgreSQL, changes by other processes arrive through LISTEN. A SQLite file is polled a
// hundred times a second while there is a watcher.
package sqljobs
