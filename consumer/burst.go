package consumer

import (
	"errors"

	"github.com/swarmiji/swarmiji/consumer/internal/bursting"
)

// takeBurst decides what to do with a message of a burst. It blocks while it asks the store of
// bursts, for up to StoreRetry. Returns true if the caller must continue with r. Otherwise the task
// was given back, or another goroutine drops or replaces the message or settles the task.
func (r *run) takeBurst() bool {
	q := r.queue
	d := q.c.bursts.Take(settlement{r}, &r.request)
	switch {
	case (d.Alone || errors.Is(d.Err, bursting.ErrSuperseded)) && r.settleIfRecorded():
	case d.Start:
		return true
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
	return false
}
