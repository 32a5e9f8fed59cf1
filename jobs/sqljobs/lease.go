package sqljobs

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

const (
	leaseText     = "SELECT fence, until, admissions, status FROM swarmiji_queue_lease WHERE queue = $1"
	saveLeaseText = `INSERT INTO swarmiji_queue_lease (queue, fence, until, admissions, status) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (queue) DO UPDATE SET fence = excluded.fence, until = excluded.until, admissions = excluded.admissions, status = excluded.status`
)

// QueueLease returns the lease record of a queue, or nil if the queue was never served. In an
// update it locks the record and waits for other holders. An invalid queue name has no record. A
// database error fails the transaction, and later calls return it. It implements
// [jobstore.LeaseTx].
func (t *tx) QueueLease(ctx context.Context, queue string) (*jobstore.QueueLease, error) {
	if t.err != nil || !possible(queue) {
		return nil, t.err
	}
	query := leaseText
	if !t.s.lite && !t.view {
		query += " FOR UPDATE"
	}
	l := &jobstore.QueueLease{Queue: queue}
	var until int64
	err := t.c.Row(ctx, query, queue).Scan(&l.Fence, &until, &l.Admissions, &l.Status)
	if errors.Is(err, sqlconn.ErrNoRows) {
		return nil, nil
	}
	l.Until = moment(until)
	return l, t.fail("lease", err)
}

// SaveQueueLease stores the lease of a queue in place of its last one, without comparing fences.
// If the lease has ended, the watchers are called after the commit. Returns ErrUnsupported in a
// View. A database error fails the transaction, and later calls return it. It implements
// [jobstore.LeaseTx].
func (t *tx) SaveQueueLease(ctx context.Context, l *jobstore.QueueLease) error {
	if err := t.writes("save a lease"); err != nil {
		return err
	}
	if _, err := t.c.Exec(ctx, saveLeaseText, l.Queue, l.Fence, l.Until.UnixMicro(), l.Admissions, string(l.Status)); err != nil {
		return t.fail("save a lease", err)
	}
	t.noteWord(l.Word(moment(t.clock())))
	return nil
}
