package redisbroker

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// Retry implements [broker.Retrier]. On a single server and with Sentinel it is atomic, with any
// queue. On a cluster it is atomic within a queue. It waits for the server.
//
// Into another queue of a cluster the successor is published first, then the delivery is
// acknowledged. If the answer is lost or the process ends between the two steps, there is one
// message too many, and no message is lost.
//
// Returns ErrUnsupported if d is not a delivery of this Broker, ErrSettled or ErrLeaseLost if d is
// no longer held. Returns ErrMalformed, ErrTooLarge or ErrNoQueue if next cannot be published.
func (b *Broker) Retry(ctx context.Context, d broker.Delivery, next broker.Outgoing) error {
	own, ok := capability.As[*delivery](d)
	if !ok || own.sub.b != b {
		return fmt.Errorf("redis retry: %w: the delivery belongs to another broker", broker.ErrUnsupported)
	}
	to, e, err := b.prepare(next)
	if err != nil {
		return err
	}
	if err := own.beginSettle(ctx); err != nil {
		return err
	}
	across := to != own.sub.q && b.conn.Clustered()
	if across {
		err = own.replaceAcross(ctx, to, e.v)
	} else {
		err = own.replace(ctx, to, e.v)
	}
	err = own.recordUnknown(err, &own.maybeSettled)
	own.endSettle(err, across)
	return err
}

// replace publishes next to the queue to and acknowledges d in one atomic step. It waits for the
// server and for the replicas of Config.WaitReplicas. If d is no longer held, nothing is
// published, and it returns notHeldError.
func (d *delivery) replace(ctx context.Context, to *queue, next outgoing) error {
	fair := 0
	if d.sub.q.knownLevels().fair {
		fair = 1
	}
	answer, _, err := to.callFrom(ctx, to.b.write, to.b.scripts.retry, d.sub.q,
		to.names.channels(), d.key, d.claim.name, next.key, next.value, timeArg(next.at), fair)
	switch {
	case err != nil:
		return wrap(err, "retry into", to.name)
	case number(answer, 0) == notFound:
		return d.notHeldError(false, false)
	}
	return nil
}

// replaceAcross publishes next to the queue to and then acknowledges d, for queues whose keys may
// be on different servers. It waits for both answers. If the publish fails, d is not
// acknowledged. If the acknowledgement fails, next is published nevertheless.
func (d *delivery) replaceAcross(ctx context.Context, to *queue, next outgoing) error {
	c := newCall(1)
	e := &entry[outgoing]{v: next, call: c}
	to.out.add(e)
	if err := to.out.wait(ctx, c, []*entry[outgoing]{e})[0]; err != nil {
		return wrap(err, "retry into", to.name)
	}
	ack := newCall(1)
	a := &entry[*delivery]{v: d, call: ack}
	d.sub.acks.add(a)
	return wrap(d.sub.acks.wait(ctx, ack, []*entry[*delivery]{a})[0], "retry in", d.sub.q.name)
}
