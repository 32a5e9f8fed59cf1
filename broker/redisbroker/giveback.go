package redisbroker

import (
	"context"
	"errors"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
)

// returnUnreceived returns all messages that Receive has not returned to the queue, at the end of
// the claiming. It first tells the server to deliver no more. It blocks, and repeats after errors,
// until the lease is lost or the Broker is closed: then the messages go back when the lease ends.
// Finally it stops listening on the owner's channel. It takes s.mu, but does not hold it while it
// waits.
func (f *fetcher) returnUnreceived() {
	s := f.s
	s.mu.Lock()
	own := s.owner
	s.mu.Unlock()
	for attempt := 0; !s.isLost(own); attempt++ {
		last, err := s.stopHandover(s.b.ctx, own)
		// Read before takeUnreceived: messages that arrive later go back in the next attempt.
		all := last <= s.lastClaim(own)
		if err == nil && !all { // the messages are on their way, or were lost
			err = f.claim(own, 1) // if they arrive first, it claims another, and the owner waits again
		}
		if err == nil {
			err = f.returnHeld(s.takeUnreceived())
		}
		if err == nil && all {
			break
		}
		if err != nil && !s.b.pause(s.b.ctx, attempt) {
			break // they go back when the lease ends
		}
	}
	s.b.stopListening(s, own)
}

// lastClaim returns the number of own's last claim whose messages have arrived, 0 without one. It
// takes s.mu.
func (s *subscription) lastClaim(own *owner) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.claims
}

// takeUnreceived removes and returns all deliveries that Receive has not returned. It takes s.mu.
func (s *subscription) takeUnreceived() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := append(s.unread.all(), s.excess...) // in the order of their arrival
	s.excess = nil
	s.unread.reset(s.unread.levels, nil)
	return ds
}

// takeExcess removes and returns the deliveries that arrived after the prefetch was reduced or the
// subscription closed. It takes s.mu.
func (s *subscription) takeExcess() []*delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	ds := s.excess
	s.excess = nil
	return ds
}

// returnHeld returns the messages ds, which Receive has not returned, to the queue, and marks
// them as settled. The delivery does not count. After an error it keeps them as excess for the
// next step. It takes s.mu.
func (f *fetcher) returnHeld(ds []*delivery) error {
	s := f.s
	if len(ds) == 0 {
		return nil
	}
	err := s.returnToQueue(s.b.ctx, ds, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.excess = append(s.excess, ds...)
		return err
	}
	for _, d := range ds {
		d.state = settled
		s.removeHeld(d)
		s.countEnded(d)
	}
	return nil
}

// stopHandover makes the server deliver no further messages to own, until own's next claim. It
// returns the number of own's last claim on the server, -1 if the server does not know own. It
// waits for the server. Returns the error of the call, or errAnswer if the answer has another form.
func (s *subscription) stopHandover(ctx context.Context, own *owner) (int64, error) {
	v, err := s.q.eval(ctx, s.b.conn.Eval, s.b.scripts.mute, own.number, s.q.names.channels())
	if err != nil {
		return 0, err
	}
	last, ok := v.(int64)
	if !ok {
		return 0, errAnswer
	}
	return last, nil
}

// isLost reports whether own's lease was lost. It takes s.mu.
func (s *subscription) isLost(own *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.gone
}

// returnToQueue sends the messages ds back to the front of the queue and waits for the server.
// received says whether Receive has returned them: then the delivery counts. A message that is no
// longer held under its claim is skipped. It sends maxBatch messages at a time, the last ones
// first, so that they keep their order. It stops at the first error: later parts are back in the
// queue then. It does not mark ds as settled here.
func (s *subscription) returnToQueue(ctx context.Context, ds []*delivery, received bool) error {
	counts := 0
	if received {
		counts = 1
	}
	for _, part := range slices.Backward(slices.Collect(slices.Chunk(ds, maxBatch))) {
		args := make([]any, 0, 1+4*len(part))
		args = append(args, s.q.names.channels())
		for _, d := range part {
			args = append(args, d.key, d.claim.name, 0, counts)
		}
		if _, _, err := s.q.callWithLevels(ctx, s.b.conn.Eval, s.b.scripts.release, args...); err != nil {
			return wrap(err, "return messages to", s.q.name)
		}
	}
	return nil
}

// leave returns the messages ds to the front of the queue and removes own on the server. The
// deliveries count. It waits for the server. After a lost answer it repeats both steps, until ctx
// ends or the Broker is closed. A message that was returned before is skipped then. It returns any
// other error at once.
func (s *subscription) leave(ctx context.Context, own *owner, ds []*delivery) error {
	for attempt := 0; ; attempt++ {
		err := s.returnToQueue(ctx, ds, true)
		if err == nil {
			err = s.removeOwner(ctx, own)
		}
		if !errors.Is(err, broker.ErrIndeterminate) || !s.b.pause(ctx, attempt) {
			return err
		}
	}
}

// removeOwner removes own on the server, which returns all messages that own still holds to the
// front of the queue. It waits for the server and repeats the call until none is left. It returns
// nil if the queue no longer exists, and stops at the first other error.
func (s *subscription) removeOwner(ctx context.Context, own *owner) error {
	for {
		answer, _, err := s.q.callWithLevels(ctx, s.b.conn.Eval, s.b.scripts.leave, s.q.names.channels(), own.number)
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
