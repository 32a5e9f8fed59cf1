// Package jobs keeps work as records in a database. A job is found by its id, asked about, updated while it runs, repeated, retried, put in a sequence
// with others, and made a parent of others. A task (package task) is a message, gone when it has been run; a job is there for who wants to know.
//
// # The parts
//
//   - [Job] is the record, [Store] the port to the databases that keep it: memjobs, sqljobs (SQLite, PostgreSQL).
//   - [Service] holds the rules of a job's life. It is what programs use.
//   - [Runner] runs what is due, with handlers as a consumer has them: in place, or dispatched as tasks ([Dispatch]).
package jobs
