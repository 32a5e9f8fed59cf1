// Package errand holds what the Listener of a schedule and the Runner of jobs have in common: both
// claim what is due, under a lease, and run a handler for it or submit a task.
package errand
