package natsbroker

import (
	"context"
	"time"
)

// The server hands a message out again when it has heard nothing of it for the lease. It tells nobody, and takes an
// acknowledgement that comes too late for one that came in time. So each holder keeps the time itself: it renews all that it
// holds every third of the lease, and what it could not renew, since the process was frozen or the connection gone, it gives up
// a little before the server does.

// hold is what came within a short time of each other and is lost together. It saves a channel for each message.
type hold struct {
	born time.Time // when the first of them may have been handed out, at the earliest
	lost chan struct{}
	dead bool
	list *delivery // unsettled
	n    int
}

// margin is how much before the server a message is given up.
func (s *subscription) margin() time.Duration { return s.lease / 10 }

// deadline is when what is in h is given up, unless it is renewed; s.mu is held.
func (s *subscription) deadline(h *hold) time.Time {
	from := h.born
	if s.renewed.After(from) {
		from = s.renewed
	}
	return from.Add(s.lease - s.margin())
}

// tick is how often the keeper looks.
func (s *subscription) tick() time.Duration { return s.lease / 6 }

// enter adds a delivery to those that are held; s.mu is held.
func (s *subscription) enter(d *delivery) {
	now := time.Now()
	if now.Sub(s.beat) > 2*s.tick() {
		now = s.beat // this process was frozen: the message may have lain in front of it all the time
	} else if !s.thawed.IsZero() {
		now = s.thawed
	}
	var h *hold
	if n := len(s.holds); n > 0 && !s.holds[n-1].dead && now.Sub(s.holds[n-1].born) < s.lease/20 {
		h = s.holds[n-1]
	} else {
		h = &hold{born: now, lost: make(chan struct{})}
		s.holds = append(s.holds, h)
	}
	d.hold = h
	d.next = h.list
	if h.list != nil {
		h.list.prev = d
	}
	h.list = d
	h.n++
}

// leave takes a delivery from those that are held; s.mu is held.
func (s *subscription) leave(d *delivery) {
	h := d.hold
	if d.prev != nil {
		d.prev.next = d.next
	} else if h.list == d {
		h.list = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
	h.n--
}

// lose gives up all that is in h; s.mu is held.
func (s *subscription) lose(h *hold) {
	if h.dead {
		return
	}
	h.dead = true
	close(h.lost)
	for h.list != nil {
		d := h.list
		s.leave(d)
		d.level.unsettled--
		d.level.poke()
	}
}

// keep renews what is held and gives up what could not be renewed, until the subscription's last delivery is settled.
func (s *subscription) keep(ctx context.Context) {
	t := time.NewTicker(s.tick())
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		s.mu.Lock()
		if now.Sub(s.beat) > 2*s.tick() && s.thawed.IsZero() {
			s.thawed = s.beat
		}
		s.beat = now
		s.expire(now)
		replies := s.due(now)
		thawed := !s.thawed.IsZero()
		s.mu.Unlock()
		if len(replies) > 0 || thawed {
			s.renew(ctx, now, replies)
		}
	}
}

// expire gives up what is past its deadline; s.mu is held.
func (s *subscription) expire(now time.Time) {
	keep := s.holds[:0]
	for i, h := range s.holds {
		if h.n > 0 && !now.Before(s.deadline(h)) {
			s.lose(h)
		}
		if h.n > 0 || i == len(s.holds)-1 && !h.dead {
			keep = append(keep, h)
		}
	}
	clear(s.holds[len(keep):])
	s.holds = keep
}

// due returns whose lease is to be renewed now, which is all or nothing; s.mu is held.
func (s *subscription) due(now time.Time) []string {
	if now.Sub(s.asked) < s.lease/3-s.tick()/2 {
		return nil
	}
	var replies []string
	for _, h := range s.holds {
		for d := h.list; d != nil; d = d.next {
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// renew tells the server that the deliveries are still worked on. It counts when the server has shown that it has read so.
func (s *subscription) renew(ctx context.Context, now time.Time, replies []string) {
	sess := s.b.conn.Live()
	if sess == nil || !s.b.outbox.trusts(sess) {
		return
	}
	s.mu.Lock()
	s.asked = now
	s.mu.Unlock()
	for _, r := range replies {
		if sess.NATS.Publish(r, progressBody) != nil {
			return
		}
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, s.lease)
		defer cancel()
		if s.b.conn.Flush(ctx) != nil || s.b.conn.Live() != sess { // another connection may have carried the question
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(replies) > 0 && now.After(s.renewed) {
			s.renewed = now
		}
		s.thawed = time.Time{} // what lay in front of this process has been read
	})
}

// deadlineOf is deadline of what holds d.
func (s *subscription) deadlineOf(d *delivery) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline(d.hold)
}
