package jobstore

import (
	"context"
	"time"
)

// QueueLease is the lease by which one runner serves a queue of jobs. Each queue that was ever
// served has one.
type QueueLease struct {
	Queue string
	// Fence is the fencing token: each new leader adds one. A leader with an older token admits no
	// job.
	Fence int64
	// Until is the end of the lease.
	Until time.Time
	// Admissions counts the admissions in which a throttler started jobs.
	Admissions int64
	// Status is a JSON object in which the leader describes the queue.
	Status []byte
}

// Word returns the text that a store sends to watchers ([Store].Watch) when the lease is saved. It
// is [LeaseWord] if the lease has ended at now, else "", which means that nothing is sent.
func (l *QueueLease) Word(now time.Time) string {
	if l.Until.After(now) {
		return ""
	}
	return LeaseWord
}

// LeaseWord is the watch text for a lease that has ended.
const LeaseWord = NoName + "\x1d"

// LeaseTx is the part of a transaction that reads and writes the leases of queues.
type LeaseTx interface {
	// QueueLease returns the lease of a queue and locks it until the transaction ends. In a View it
	// locks nothing. Returns nil if the queue was never served.
	QueueLease(ctx context.Context, queue string) (*QueueLease, error)
	// SaveQueueLease replaces the lease of a queue. This transaction must have locked it.
	SaveQueueLease(ctx context.Context, l *QueueLease) error
}
