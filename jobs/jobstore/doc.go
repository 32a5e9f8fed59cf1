// Package jobstore has the records that a store of jobs keeps, and the port to it: [Store] and [Tx].
// Adapters import it alone. The records are jobs, early answers, deferrals of tasks, and leases of
// queues. The rules of their life are in package jobs, above the transactions.
//
//   - job.go, handout.go: Job, and Job as it was handed out; errors.go: what can go wrong
//   - store.go, tx.go: the port
//   - early.go, deferral.go, lease.go: the other records
package jobstore
