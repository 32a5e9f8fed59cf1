// Package errand holds what the Listener of a schedule and the Runner of jobs have in common beside
// what they hold and run: how they submit tasks, and how they write and read JSON.
package errand
