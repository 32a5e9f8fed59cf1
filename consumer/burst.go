package consumer

import (
	"errors"

	"github.com/swarmiji/swarmiji/consumer/internal/bursting"
)

// continueBurst does what d says, with a message of a burst: it continues with settleTaken, or
// another goroutine drops or replaces the message or settles the task.
func (r *run) continueBurst(d bursting.Decision) {
	q := r.queue
	switch {
	case (d.Alone || errors.Is(d.Err, bursting.ErrSuperseded)) && r.settleIfRecorded():
	case d.Start:
		q.settleTaken(r)
	case errors.Is(d.Err, bursting.ErrSuperseded):
		q.settleAsync(r, verdict{kind: revoked, err: d.Err})
	case d.Err != nil:
		q.settleAsync(r, verdict{kind: failed, err: d.Err, deadLetter: true})
	case d.Drop:
		q.settling.Go(r.dropCopy)
	case d.Next != nil:
		if d.Next.Format != nil {
			r.format, r.arrived = d.Next.Format, d.Next.Arrived
		}
		q.settling.Go(func() { r.replace(q.source, d.Next.Next, d.Next.SetDelay(d.Delay), "burst") })
	}
}
