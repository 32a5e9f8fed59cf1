package redisbroker

import (
	"context"
	"fmt"
	"time"
)

// keepLease renews the owner's lease when a third of it is over. It marks the owner as lost when
// the lease has ended. After a failed renewal it tries again within a twelfth of the lease. It is
// one of the subscription's two goroutines.
//
// It returns when the subscription is closed and holds no message. When the Broker is closed it
// first marks the owner as lost. In both cases it ends with removeWhenDone. It takes s.mu.
func (s *subscription) keepLease() {
	every := s.lease / 3
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		s.mu.Lock()
		own := s.owner
		if s.isIdle && (own.gone || len(own.held) == 0) {
			s.mu.Unlock()
			s.removeWhenDone(own)
			return
		}
		now := time.Now()
		if !own.gone && !own.alive(now) {
			s.loseOwner(own)
		}
		left := own.until.Sub(now)
		renew := !own.gone && left <= s.lease*2/3
		idle := s.isIdle
		s.mu.Unlock()
		wait := every
		if renew {
			if err := s.renew(own); err != nil {
				wait = min(every/4, left)
			}
		} else if left > 0 {
			wait = min(every, max(left-s.lease*2/3, time.Millisecond))
		}
		t.Reset(wait)
		kick := s.wakeFetch
		if !idle { // until then the notifications belong to the claiming goroutine
			kick = nil
		}
		select {
		case <-t.C:
		case <-kick:
		case <-s.idleOr(idle):
		case <-s.b.ctx.Done():
			s.mu.Lock()
			s.loseOwner(s.owner)
			s.mu.Unlock()
			s.removeWhenDone(own)
			return
		}
	}
}

// idleOr returns the channel that is closed when the claiming has ended, or nil if known is true.
func (s *subscription) idleOr(known bool) <-chan struct{} {
	if known {
		return nil
	}
	return s.idle
}

// renew sends one renewal of own's lease to the server. It waits until the current lease ends at
// most. The new lease counts from the sending; own.until never moves back. If the server does not
// know the owner, renew marks own as lost and returns errNoOwner. It returns any other error of the
// call, and own.until stays. It takes s.mu, but does not hold it while it waits.
func (s *subscription) renew(own *owner) error {
	s.mu.Lock()
	until := own.until
	s.mu.Unlock()
	ctx, cancel := context.WithDeadline(s.b.ctx, until)
	defer cancel()
	sent := time.Now()
	v, err := s.q.eval(ctx, s.b.conn.EvalOnce, s.b.scripts.renew, own.number, s.lease.Microseconds())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v != int64(1) {
		s.loseOwner(own)
		return fmt.Errorf("%w: %d", errNoOwner, own.number)
	}
	if until := sent.Add(s.lease); until.After(own.until) {
		own.until = until
	}
	return nil
}

// removeWhenDone removes the owner of a closed subscription on the server, unless its lease is
// lost. Before that it waits until all acknowledgements were sent. Then it removes the
// subscription from the Broker. It ignores errors. Call it when no message is held. It takes s.mu
// and b.mu.
func (s *subscription) removeWhenDone(own *owner) {
	b := s.b
	if !s.isLost(own) && s.acks.flush(b.ctx) == nil {
		_ = s.removeOwner(b.ctx, own)
	}
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
}
