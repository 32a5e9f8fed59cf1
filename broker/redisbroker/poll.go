package redisbroker

import (
	"context"
	"slices"
	"time"
)

// A waiting subscription must poll at intervals and renew its lease. Each for itself, that is two
// calls a second for each queue. So the Broker does both for its waiting subscriptions, with one
// call for many. In a cluster the queues are in different slots, and each subscription polls for
// itself.

const (
	// maxPolled limits the queues of one call, because the server is blocked during it.
	maxPolled = 100
	// pollTimeout limits one call.
	pollTimeout = 5 * time.Second
)

// pollLoop calls pollTogether for the waiting subscriptions, maxPolled at a time, every
// Config.Poll. It blocks until the Broker is closed, on a goroutine of its own.
func (b *Broker) pollLoop() {
	t := time.NewTicker(b.cfg.Poll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-b.ctx.Done():
			return
		}
		for part := range slices.Chunk(b.waitingSubscriptions(), maxPolled) {
			b.pollTogether(part)
		}
	}
}

// waitingSub is a waiting subscription with its owner.
type waitingSub struct {
	s     *subscription
	own   *owner
	renew bool
	done  bool // finished claims exist that were not reported to the server
}

// waitingSubscriptions returns the open subscriptions to which the server delivers without a
// claim, and whether their leases are due for a renewal. It takes b.mu and their mutexes.
func (b *Broker) waitingSubscriptions() []waitingSub {
	b.mu.Lock()
	defer b.mu.Unlock()
	ts := make([]waitingSub, 0, len(b.subs))
	for s := range b.subs {
		s.mu.Lock()
		if own := s.owner; s.drained && !s.isClosed && !own.gone {
			// earlier than the subscription itself would renew it
			renew := time.Until(own.until) < s.lease*2/3+2*b.cfg.Poll
			ts = append(ts, waitingSub{s: s, own: own, renew: renew, done: own.done > 0})
		}
		s.mu.Unlock()
	}
	return ts
}

// pollTogether renews the leases of some subscriptions with one call to the server, and wakes the
// subscriptions that can claim messages. It waits for the answer up to pollTimeout. After an error
// it wakes all, so that each calls the server itself. Subscriptions whose lease has ended become
// lost. It takes the mutexes of the subscriptions.
func (b *Broker) pollTogether(ts []waitingSub) {
	var keys []string
	args := make([]any, 0, 4*len(ts))
	for _, t := range ts {
		n := &t.s.q.names
		l := t.s.q.knownLevels()
		ready := l.readyKeys(n)
		keys = append(keys, n.part("d"), n.part("o"))
		keys = append(keys, ready...)
		parked := 0
		if l.fair {
			keys, parked = append(keys, n.part("p")), 1
		}
		renew := int64(0)
		if t.renew {
			renew = t.s.lease.Microseconds()
		}
		args = append(args, len(ready), t.own.number, renew, parked)
	}
	ctx, cancel := context.WithTimeout(b.ctx, pollTimeout)
	defer cancel()
	sent := time.Now()
	v, err := b.conn.EvalOnce(ctx, b.scripts.tend.Script, keys, args...)
	answer, _ := v.(string)
	if err != nil || len(answer) != len(ts) {
		for _, t := range ts {
			t.s.claimNow()
		}
		return
	}
	for i, t := range ts {
		if answer[i] == '2' {
			t.s.mu.Lock()
			t.s.loseOwner(t.own)
			t.s.mu.Unlock()
			continue
		}
		if answer[i] == '1' || t.done {
			t.s.claimNow()
		}
		if t.renew {
			t.s.recordRenewal(t.own, sent)
		}
	}
}

// claimNow wakes the claiming goroutine to claim without a notification, even if the server
// delivers by itself. That claim also reports all finished claims. It takes s.mu.
func (s *subscription) claimNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = false
	s.quiet = true
	s.wakeFetcher()
}
