package memjobs

import (
	"bytes"
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// copyLease returns a copy that shares no memory with l, with its time cut to microseconds. It
// returns nil for nil.
func copyLease(l *jobstore.QueueLease) *jobstore.QueueLease {
	if l == nil {
		return nil
	}
	c := *l
	c.Status, c.Until = bytes.Clone(l.Status), exact(l.Until)
	return &c
}

// QueueLease returns a copy of the lease of a queue, or nil if the queue was never served. Returns
// the error of ready if the transaction cannot be used. It implements [jobstore.LeaseTx].
func (tx *tx) QueueLease(ctx context.Context, queue string) (*jobstore.QueueLease, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	return copyLease(tx.core.table.leases[queue]), nil
}

// SaveQueueLease stores a copy of the lease in place of the lease of its queue. It records the
// previous one for a rollback. If the lease has ended, watchers are called after the commit.
// Returns the error of ready if the transaction cannot be used. It implements [jobstore.LeaseTx].
func (tx *tx) SaveQueueLease(ctx context.Context, l *jobstore.QueueLease) error {
	if err := tx.ready(ctx); err != nil {
		return err
	}
	leases := tx.core.table.leases
	if before := leases[l.Queue]; before != nil {
		tx.undoLeases = append(tx.undoLeases, before)
	} else {
		tx.undoLeases = append(tx.undoLeases, &jobstore.QueueLease{Queue: l.Queue})
	}
	leases[l.Queue] = copyLease(l)
	if word := l.Word(tx.now()); word != "" {
		tx.words = append(tx.words, word)
	}
	return nil
}

// rollbackLeases undoes all changes of leases in this transaction, the last one first. A previous
// lease with a Fence of 0 means that no lease was stored; the lease is then deleted.
func (tx *tx) rollbackLeases() {
	leases := tx.core.table.leases
	for i := len(tx.undoLeases) - 1; i >= 0; i-- {
		before := tx.undoLeases[i]
		if leases[before.Queue] = before; before.Fence == 0 {
			delete(leases, before.Queue)
		}
	}
	tx.undoLeases = nil
}

// QueueLease returns a copy of the lease of a queue, or nil if the queue was never served. It
// waits for the lock of the table. Returns the error of read if the view cannot be used. It
// implements [jobstore.LeaseTx].
func (v *view) QueueLease(ctx context.Context, queue string) (l *jobstore.QueueLease, err error) {
	err = v.read(ctx, func() { l = copyLease(v.core.table.leases[queue]) })
	return l, err
}

// SaveQueueLease returns errReads, since a View cannot write.
func (v *view) SaveQueueLease(context.Context, *jobstore.QueueLease) error { return errReads }
