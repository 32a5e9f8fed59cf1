// Package line measures the line of a queue of jobs: the waiting jobs, the running jobs, and the
// jobs that a limit lets start. Leaders of queues use it, and Explain.
package line
