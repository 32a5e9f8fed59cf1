// Package jobstore contains the records of a database of jobs and the port to it: [Store] and [Tx].
// The records are jobs, early answers, deferrals of tasks, and leases of queues. Package jobs
// applies the rules of these records, on top of the transactions. Adapters import no other package
// of jobs.
//
// A job is open until its state is FINISHED, FAILED or CANCELLED; then it is over ([State.Over]). A
// deferral is open until its phase is DeferralOver.
package jobstore
