// Package runner runs jobs that are due, with handlers as a consumer has them: in place, or
// dispatched as tasks ([Dispatch]). With [Config].Queue a [Runner] runs the jobs of that queue, as
// far as its limit and its throttler let it. A [Type] is a kind of job that asks a service for
// something and is answered later.
//
//   - runner.go, config.go: Runner, New, Config; progress.go: what a handler sees of its job
//   - type.go: jobs that are answered from outside; dispatch.go: jobs as tasks
//   - round.go: one Run: fetching, leases, the stop; source.go: where its jobs come from
//   - attempt.go, answer.go: attempts in place, their answers and timeouts
//   - submit.go, record.go, prepared.go: tasks of jobs, from submission to their end
package runner
