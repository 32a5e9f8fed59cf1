// Package queue decides which jobs of a queue start. A [Queue] has a limit, an order and optionally
// a [Throttler], such as [Shares]. One process at a time serves a queue, under a lease. The
// [Leader] of this process admits jobs: it claims those that may start. Leaders of other processes
// wait for the lease.
//
// Programs pass a Queue to a runner (package runner). A program with its own runner calls
// jobs.Service.NewLeader.
//
// docs/internals/jobs.md explains the implementation.
package queue
