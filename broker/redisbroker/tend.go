package redisbroker

import (
	"context"
	"slices"
	"time"
)

// A consumer that waits has to look by itself now and then, and to renew its lease. One by one,
// that is two calls a second for each queue; so a Broker does it for all its subscriptions that
// wait, many in one call. In a cluster each queue lies in another slot: there each subscription
// does it by itself.

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
	done  bool // the server is to be told of claims of which nothing is held
}

// waiting returns the subscriptions that wait for a word of more.
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

// lookAfter renews the leases of some subscriptions, and has those claim for which there is
// something. After a failure all do, so that each learns of it.
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
	for i, t := range ts {
		switch {
		case err != nil || len(answer) != len(ts) || answer[i] == '1':
			t.s.poll()
		case answer[i] == '2':
			t.s.mu.Lock()
			t.s.lose(t.own)
			t.s.mu.Unlock()
		case t.done:
			t.s.poll()
		}
		if err == nil && t.renew && len(answer) == len(ts) && answer[i] != '2' {
			t.s.renewed(t.own, sent)
		}
	}
}

// poll has the claiming goroutine look although there was no word.
func (s *subscription) poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = false
	s.quiet = true
	s.prod()
}
