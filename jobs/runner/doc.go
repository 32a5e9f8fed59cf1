// Package runner runs due jobs with the same handlers as a consumer: in place, or dispatched as
// tasks ([Dispatch]). With [Config].Queue a [Runner] runs the jobs of that queue, as its limit and
// its throttler let it. A [Type] is a kind of job that sends a request to a service and gets the
// answer later.
//
//   - runner.go, config.go: Runner, New, Config; progress.go: the job, for its handler
//   - type.go: jobs that are answered from outside; dispatch.go: jobs as tasks
//   - round.go: one Run: fetching, leases, the stop; source.go: the source of its jobs
//   - attempt.go, answer.go: attempts in place, their answers and timeouts
//   - submit.go, record.go, prepared.go: tasks of jobs, from submission to their end
package runner
