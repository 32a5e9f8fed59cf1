package jobstore

import (
	"context"
	"time"
)

// QueueLease is the lease by which one runner leads a queue of jobs. Each queue that was ever
// served has one.
type QueueLease struct {
	Queue string
	// Fence is the fencing token: it counts the leaders. A leader with an older one admits no job.
	Fence int64
	// Until is the end of the lease.
	Until time.Time
	// Admissions counts the plans of throttlers that started jobs.
	Admissions int64
	// Status is a JSON object by which the leader describes the queue.
	Status []byte
}

// Word returns the word that a store sends to watchers when the lease is saved. "": none, as long
// as the lease lasts.
func (l *QueueLease) Word(now time.Time) string {
	if l.Until.After(now) {
		return ""
	}
	return LeaseWord
}

// LeaseWord is the word for a lease that has ended.
const LeaseWord = NoName + "\x1d"

// LeaseTx is the part of a transaction that reads and writes the leases of queues.
type LeaseTx interface {
	// QueueLease returns the lease of a queue and locks it. Returns nil if there is none. In a View
	// it locks nothing.
	QueueLease(ctx context.Context, queue string) (*QueueLease, error)
	// SaveQueueLease replaces the lease of a queue, which this transaction has locked.
	SaveQueueLease(ctx context.Context, l *QueueLease) error
}
