// Package jobstore holds the records of a store of jobs, and the port to it: [Store] and [Tx].
// Adapters import no other package of jobs. The records are jobs, early answers, deferrals of
// tasks, and leases of queues. Their rules are in package jobs, above the transactions.
//
//   - job.go, row.go, handout.go: Job, as stored and as claimed; errors.go: the errors
//   - store.go, tx.go: the port
//   - early.go, deferral.go, lease.go: the other records
package jobstore
