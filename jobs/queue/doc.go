// Package queue decides which jobs of a queue start. A [Queue] has a limit, an order and, if wanted,
// a [Throttler], such as [Shares]. One process at a time serves a queue, by a lease: its [Leader]
// admits jobs and hands them out. Leaders of other processes stand by.
//
// Programs give a Queue to a runner (package runner). Those with a runner of their own call
// jobs.Service.Lead.
//
//   - queue.go: Queue; throttler.go, shares.go: what decides besides the limit
//   - leader.go: the lease of a queue; next.go: when a leader looks at its queue
//   - admission.go: one look, which is one transaction; roster.go: the jobs that run, for throttlers
package queue
