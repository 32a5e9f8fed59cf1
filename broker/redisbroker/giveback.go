package redisbroker

import (
	"context"
	"errors"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// giveBack gives back what nobody has received, at the end of the claiming.
func (f *fetcher) giveBack() {
	s := f.s
	s.mu.Lock()
	own := s.owner
	s.mu.Unlock()
	for attempt := 0; !s.isLost(own); attempt++ {
		// What the server has handed over without an answer that came can be asked for.
		last, err := s.mute(s.b.ctx, own)
		if err == nil && last > s.lastClaim(own) {
			err = f.claim(own, 1)
		}
		if err == nil {
			err = f.back(s.unreceived())
		}
		if err == nil && last <= s.lastClaim(own) {
			break
		}
		if err != nil && !s.b.pause(s.b.ctx, attempt) {
			break // the lease ends
		}
	}
	s.b.ignore(s, own)
}

// lastClaim is the place of the last claim whose messages have come.
func (s *subscription) lastClaim(own *owner) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.claims
}

// unreceived takes everything that nobody has received.
func (s *subscription) unreceived() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := s.excess
	s.excess = nil
	for level, list := range s.ready {
		ds = append(ds, list...)
		s.ready[level] = nil
	}
	s.unread = 0
	return ds
}

// unwanted takes what was handed over after it was not wanted any more.
func (s *subscription) unwanted() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := s.excess
	s.excess = nil
	return ds
}

// back gives messages back that nobody has received.
func (f *fetcher) back(ds []*delivery) error {
	s := f.s
	if len(ds) == 0 {
		return nil
	}
	err := s.giveBack(s.b.ctx, ds, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.excess = append(s.excess, ds...)
		return err
	}
	for _, d := range ds {
		d.state = settled
		s.drop(d)
		s.finish(d)
	}
	return nil
}

// mute has the server hand over nothing more by itself. It returns the place of the owner's last claim.
func (s *subscription) mute(ctx context.Context, own *owner) (int64, error) {
	v, err := s.q.eval(ctx, s.b.conn.Eval, s.b.scripts.mute, own.number)
	if err != nil {
		return 0, err
	}
	last, ok := v.(int64)
	if !ok {
		return 0, errAnswer
	}
	return last, nil
}

func (s *subscription) isLost(own *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.gone
}

// giveBack gives messages back to the front of the queue; received tells whether they were handed out.
func (s *subscription) giveBack(ctx context.Context, ds []*delivery, received bool) error {
	counts := 0
	if received {
		counts = 1
	}
	for part := range slices.Chunk(ds, maxBatch) {
		args := make([]any, 0, 1+4*len(part))
		args = append(args, s.q.names.channels())
		for _, d := range part {
			args = append(args, d.key, d.claim.name, 0, counts)
		}
		if _, _, err := s.q.call(ctx, s.b.conn.Eval, s.b.scripts.release, args...); err != nil {
			return wrap(err, "give back to", s.q.name)
		}
	}
	return nil
}

// leave ends an owner on the server, which gives back whatever it may still hold.
func (s *subscription) leave(ctx context.Context, own *owner) error {
	for {
		answer, _, err := s.q.call(ctx, s.b.conn.Eval, s.b.scripts.leave, s.q.names.channels(), own.number)
		if errors.Is(err, broker.ErrNoQueue) {
			return nil
		}
		if err != nil {
			return wrap(err, "leave", s.q.name)
		}
		if number(answer, 1) == 1 {
			return nil
		}
	}
}
