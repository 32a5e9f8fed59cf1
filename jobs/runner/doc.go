// Package runner runs due jobs with the same handlers as a consumer. The handlers run in this
// process, or jobs are dispatched as tasks ([Dispatch]). With [Config].Queue a [Runner] runs the
// jobs of that queue, as its limit and its throttler admit them. A [Type] is a kind of job that
// sends a request to a service and receives the answer later.
//
// docs/internals/jobs.md explains the implementation.
package runner
