// Package errand holds what those have in common that take on what is due, under a lease, and run a handler for it or submit a task: the
// Listener of a schedule and the Runner of jobs.
package errand
