package natsbroker

import (
	"context"
	"time"
)

// The server delivers a message again if its lease was not renewed. It does not tell the holder,
// and it accepts a late acknowledgement. So each holder measures the lease itself. It renews all
// leases every third of the lease. It cannot renew while the process is frozen or the connection is
// lost. Then it regards the messages as lost shortly before the server does.

// leaseGroup holds deliveries that arrived within a short time and are lost together. It saves a
// channel for each message.
type leaseGroup struct {
	born   time.Time // the earliest time at which one of them may have been delivered
	lost   chan struct{}
	isLost bool
	list   *delivery // unsettled deliveries
	n      int       // number of deliveries in list
}

// margin returns how much earlier than on the server a lease ends here: a tenth of the lease.
func (s *subscription) margin() time.Duration { return s.lease / 10 }

// deadline returns when the deliveries in h are lost here unless the lease is renewed: nine tenths
// of the lease after h.born or the last renewal. Call it with s.mu held.
func (s *subscription) deadline(h *leaseGroup) time.Time {
	from := h.born
	if s.renewed.After(from) {
		from = s.renewed
	}
	return from.Add(s.lease - s.margin())
}

// checkInterval returns the interval at which keepLeases runs: a sixth of the lease.
func (s *subscription) checkInterval() time.Duration { return s.lease / 6 }

// addHeld adds d to the newest group of held deliveries, or to a new group if that is too old or
// lost. After a freeze of the process the new group counts from before the freeze, because d may
// have waited in a buffer since then. It does not count d in level.unsettled. Call it with s.mu
// held.
func (s *subscription) addHeld(d *delivery) {
	now := time.Now()
	if now.Sub(s.lastCheck) > 2*s.checkInterval() {
		now = s.lastCheck // after a freeze: the message may have waited in a buffer since then
	} else if !s.frozenSince.IsZero() {
		now = s.frozenSince
	}
	var h *leaseGroup
	if n := len(s.groups); n > 0 && !s.groups[n-1].isLost && now.Sub(s.groups[n-1].born) < s.lease/20 {
		h = s.groups[n-1]
	} else {
		h = &leaseGroup{born: now, lost: make(chan struct{})}
		s.groups = append(s.groups, h)
	}
	d.group = h
	d.next = h.list
	if h.list != nil {
		h.list.prev = d
	}
	h.list = d
	h.n++
}

// removeHeld removes a delivery from its group. It changes neither d.state nor level.unsettled.
// Call it with s.mu held.
func (s *subscription) removeHeld(d *delivery) {
	h := d.group
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

// loseGroup marks the group h as lost: it closes the Lost channel of its deliveries and removes
// them, which frees their prefetch and wakes their levels. It does nothing for a lost group. It
// does not change d.state. Call it with s.mu held.
func (s *subscription) loseGroup(h *leaseGroup) {
	if h.isLost {
		return
	}
	h.isLost = true
	close(h.lost)
	for h.list != nil {
		d := h.list
		s.removeHeld(d)
		d.level.unsettled--
		d.level.wakeIfRoom()
	}
}

// keepLeases checks the leases of held deliveries every sixth of the lease: it marks groups as lost
// whose lease has ended, and renews the others every third. It also notices that the process was
// frozen, and sets s.frozenSince. It returns when ctx ends. It takes s.mu.
func (s *subscription) keepLeases(ctx context.Context) {
	t := time.NewTicker(s.checkInterval())
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		s.mu.Lock()
		if now.Sub(s.lastCheck) > 2*s.checkInterval() && s.frozenSince.IsZero() {
			s.frozenSince = s.lastCheck
		}
		s.lastCheck = now
		s.expireGroups(now)
		replies := s.repliesToRenew(now)
		thawed := !s.frozenSince.IsZero()
		s.mu.Unlock()
		if len(replies) > 0 || thawed {
			s.renewLeases(ctx, now, replies)
		}
	}
}

// expireGroups marks the groups whose deadline is not after now as lost, and drops empty groups
// except the newest. Call it with s.mu held.
func (s *subscription) expireGroups(now time.Time) {
	keep := s.groups[:0]
	for i, h := range s.groups {
		if h.n > 0 && !now.Before(s.deadline(h)) {
			s.loseGroup(h)
		}
		if h.n > 0 || i == len(s.groups)-1 && !h.isLost {
			keep = append(keep, h)
		}
	}
	clear(s.groups[len(keep):])
	s.groups = keep
}

// repliesToRenew returns the reply subjects of all held deliveries if the last renewal was sent
// about a third of the lease ago. Otherwise it returns nil. Call it with s.mu held.
func (s *subscription) repliesToRenew(now time.Time) []string {
	if now.Sub(s.renewSentAt) < s.lease/3-s.checkInterval()/2 {
		return nil
	}
	var replies []string
	for _, h := range s.groups {
		for d := h.list; d != nil; d = d.next {
			replies = append(replies, d.reply)
		}
	}
	return replies
}

// renewLeases sends a renewal for each of the replies, sets s.renewSentAt to now, and does not
// wait. Without a connection on which settlements are permitted it does nothing. The renewal counts
// when the server has answered a later request on the same connection. A goroutine waits for that
// up to the lease. Then it sets s.renewed to now and clears s.frozenSince. renewLeases and the
// goroutine take s.mu.
func (s *subscription) renewLeases(ctx context.Context, now time.Time, replies []string) {
	sess := s.b.conn.Live()
	if sess == nil || !s.b.outbox.isTrusted(sess) {
		return
	}
	s.mu.Lock()
	s.renewSentAt = now
	s.mu.Unlock()
	for _, r := range replies {
		if sess.NATS.Publish(r, progressBody) != nil {
			return
		}
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, s.lease)
		defer cancel()
		// another connection may have carried the request
		if s.b.conn.Flush(ctx) != nil || s.b.conn.Live() != sess {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(replies) > 0 && now.After(s.renewed) {
			s.renewed = now
		}
		s.frozenSince = time.Time{} // messages that waited in this process's buffers were read
	})
}

// deadlineOf returns the deadline of d. It takes s.mu.
func (s *subscription) deadlineOf(d *delivery) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline(d.group)
}
