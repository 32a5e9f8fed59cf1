package redisbroker

import (
	"context"
	"slices"
	"time"
)

// A subscription that waits has to poll now and then, and to renew its lease. One by one, that is two
// calls a second for each queue. So the Broker does both for its waiting subscriptions, many in one
// call. In a cluster the queues lie in different slots, and each subscription polls for itself.

const (
	// maxTended is how many queues one call looks at: the server does nothing else meanwhile.
	maxTended = 100
	// tendTime bounds one call.
	tendTime = 5 * time.Second
)

// tend looks after the subscriptions that wait, until the Broker is closed.
func (b *Broker) tend() {
	t := time.NewTicker(b.cfg.Poll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-b.ctx.Done():
			return
		}
		for part := range slices.Chunk(b.waiting(), maxTended) {
			b.lookAfter(part)
		}
	}
}

// tended is a subscription that waits, with its owner.
type tended struct {
	s     *subscription
	own   *owner
	renew bool
	done  bool // there are claims of which nothing is held, and the server does not know it
}

// waiting returns the subscriptions that wait to be notified of messages.
func (b *Broker) waiting() []tended {
	b.mu.Lock()
	defer b.mu.Unlock()
	ts := make([]tended, 0, len(b.subs))
	for s := range b.subs {
		s.mu.Lock()
		if own := s.owner; s.drained && !s.isClosed && !own.gone {
			// Before the subscription would do it by itself.
			renew := time.Until(own.until) < s.lease*2/3+2*b.cfg.Poll
			ts = append(ts, tended{s: s, own: own, renew: renew, done: own.done > 0})
		}
		s.mu.Unlock()
	}
	return ts
}

// lookAfter renews the leases of some subscriptions, and wakes those that have something to claim.
// After a failure it wakes all, so that each meets the failure itself.
func (b *Broker) lookAfter(ts []tended) {
	var keys []string
	args := make([]any, 0, 3*len(ts))
	for _, t := range ts {
		n := &t.s.q.names
		lists := max(1, len(t.s.q.known().bounds))
		keys = append(keys, n.part("d"), n.part("o"))
		for i := range lists {
			keys = append(keys, n.ready(i))
		}
		renew := int64(0)
		if t.renew {
			renew = t.s.lease.Microseconds()
		}
		args = append(args, lists, t.own.number, renew)
	}
	ctx, cancel := context.WithTimeout(b.ctx, tendTime)
	defer cancel()
	sent := time.Now()
	v, err := b.conn.EvalOnce(ctx, b.scripts.tend.Script, keys, args...)
	answer, _ := v.(string)
	if err != nil || len(answer) != len(ts) {
		for _, t := range ts {
			t.s.poll()
		}
		return
	}
	for i, t := range ts {
		if answer[i] == '2' {
			t.s.mu.Lock()
			t.s.lose(t.own)
			t.s.mu.Unlock()
			continue
		}
		if answer[i] == '1' || t.done {
			t.s.poll()
		}
		if t.renew {
			t.s.renewed(t.own, sent)
		}
	}
}

// poll makes the claiming goroutine claim although nothing was notified.
func (s *subscription) poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = false
	s.quiet = true
	s.prod()
}
