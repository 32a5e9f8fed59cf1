// Package line measures the line of a queue of jobs: what stands in it, what runs, and what a limit
// lets start. Leaders of queues use it, and the explanation why a job waits.
package line
