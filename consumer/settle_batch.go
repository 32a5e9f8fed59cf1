package consumer

import (
	"context"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer/internal/saves"
	"github.com/swarmiji/swarmiji/resultstore"
)

// ended is an attempt that is settled by its verdict.
type ended struct {
	*run
	v verdict
}

// settlePlain settles r by v, if isPlain says that it can. It does not wait for the result store:
// another goroutine stores the result with those of other attempts, and continues. Returns false,
// and does nothing, if it cannot settle r. That is also so if the store saves no batches.
func (q *queue) settlePlain(r *run, v verdict) bool {
	if !r.isPlain(v) || r.stale.Load() || r.isLost() {
		return false
	}
	store := r.store()
	if store == nil || r.request.ReplyTo == "" && resultstore.RepliesOnly(store) { // nothing is stored
		q.settling.Hold()
		acknowledge(q.c.settle, ended{r, v}, nil)
		return true
	}
	saver := q.c.savers.Of(store)
	if saver == nil || len(v.result) > saves.MaxResult {
		return false
	}
	rec, err := r.protectedRecord(v.kind.state(), v, r.ended)
	if err != nil {
		return false
	}
	r.inBatch = true
	q.settling.Hold() // until acknowledge has returned
	saver.Add(rec, ended{r, v})
	return true
}

// acknowledge continues the settlement of e after its result was stored, or not because of err. It
// acknowledges the message, counts, and sends the event. If err is not nil or the acknowledgement
// fails, it settles e on another goroutine, where each step is repeated. It ends a Hold of
// q.settling.
func acknowledge(ctx context.Context, e ended, err error) {
	q := e.queue
	defer q.settling.Release()
	if err != nil {
		q.settleAsync(e.run, e.v)
		return
	}
	e.final.Store(true)
	e.v.recorded = true
	if !e.acked.Load() {
		err = e.delivery.Ack(ctx)
	}
	if err != nil && !broker.Gone(err) {
		q.settleAsync(e.run, e.v)
		return
	}
	e.releaseEarlySlot()
	if err == nil { // otherwise it runs elsewhere
		e.settled(e.v)
	}
}
