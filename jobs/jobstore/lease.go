package jobstore

import (
	"context"
	"time"
)

// QueueLease is the lease by which one runner leads a queue of jobs. There is one for each queue
// that was ever served.
type QueueLease struct {
	Queue string
	// Fence counts the leaders. A leader with an older one admits nothing more.
	Fence int64
	// Until is the end of the lease.
	Until time.Time
	// Admissions counts the decisions of throttlers that were carried out.
	Admissions int64
	// Status is a JSON object that the leader tells of the queue.
	Status []byte
}

// Word is the word by which a store tells watchers that the lease was saved; "": it tells nothing,
// as of one that lasts.
func (l *QueueLease) Word(now time.Time) string {
	if l.Until.After(now) {
		return ""
	}
	return LeaseWord
}

// LeaseWord is the word by which a store tells watchers of a lease that has ended.
const LeaseWord = noName + "\x1d"

// LeaseTx is the part of a transaction that reads and writes the leases of queues.
type LeaseTx interface {
	// QueueLease returns the lease of a queue and locks it; nil if there is none. In a View it
	// locks nothing.
	QueueLease(ctx context.Context, queue string) (*QueueLease, error)
	// SaveQueueLease writes a lease in the place of that of its queue, which this transaction has
	// locked.
	SaveQueueLease(ctx context.Context, l *QueueLease) error
}
