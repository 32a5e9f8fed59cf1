// Package queue decides which jobs of a queue start. A [Queue] has a limit, an order and, if
// wanted, a [Throttler], such as [Shares]. One process at a time serves a queue, under a lease: its
// [Leader] admits jobs and claims them. Leaders of other processes stand by.
//
// Programs give a Queue to a runner (package runner). A program with its own runner calls
// jobs.Service.Lead.
//
//   - queue.go: Queue; throttler.go, shares.go: decisions besides the limit
//   - leader.go: the lease of a queue; next.go: when a leader looks at its queue
//   - admission.go: one look, which is one transaction; roster.go: the running jobs, for throttlers
package queue
