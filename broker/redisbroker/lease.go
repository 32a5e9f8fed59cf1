package redisbroker

import (
	"context"
	"fmt"
	"time"
)

// keep renews the lease until nothing is held any more after Close, and tells when it is lost.
func (s *subscription) keep() {
	every := s.lease / 3
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		s.mu.Lock()
		own := s.owner
		if s.isIdle && (own.gone || len(own.held) == 0) {
			s.mu.Unlock()
			s.end(own)
			return
		}
		now := time.Now()
		if !own.gone && !own.alive(now) {
			s.lose(own)
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
		kick := s.kick
		if !idle { // it is the claiming goroutine's
			kick = nil
		}
		select {
		case <-t.C:
		case <-kick:
		case <-s.idleOr(idle):
		case <-s.b.ctx.Done():
			s.mu.Lock()
			s.lose(s.owner)
			s.mu.Unlock()
			s.end(own)
			return
		}
	}
}

// idleOr is closed when the claiming has ended, unless that is known already.
func (s *subscription) idleOr(known bool) <-chan struct{} {
	if known {
		return nil
	}
	return s.idle
}

// renew renews an owner's lease.
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
		s.lose(own)
		return fmt.Errorf("%w: %d", errNoOwner, own.number)
	}
	if until := sent.Add(s.lease); until.After(own.until) {
		own.until = until
	}
	return nil
}

// end ends a closed subscription of which nothing is held any more.
func (s *subscription) end(own *owner) {
	b := s.b
	if !s.isLost(own) && s.acks.flush(b.ctx) == nil {
		_ = s.leave(b.ctx, own)
	}
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
}
