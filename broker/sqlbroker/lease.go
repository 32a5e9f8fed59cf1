package sqlbroker

import (
	"context"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// keepLease renews the leases of the held messages when a third of them is over, all in one
// transaction. After a failure it tries again after a 24th of the lease. It marks those as lost
// whose lease has ended or that the database has given to another consumer. It is one of the
// subscription's two goroutines.
//
// It returns when the subscription is closed and holds no message, and first removes it from the
// Broker. It also returns when the Broker is closed. It takes s.mu and b.mu.
func (s *subscription) keepLease() {
	every := s.lease / 6
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		ds, first, done := s.dueForRenewal(time.Now())
		if done {
			s.b.mu.Lock()
			delete(s.b.subs, s)
			s.b.mu.Unlock()
			return
		}
		wait := every
		if len(ds) > 0 && s.renew(ds, first) != nil {
			wait = every / 4
		}
		s.findTaken(time.Now())
		t.Reset(wait)
		select {
		case <-t.C:
		case <-s.wakeLease:
		case <-s.b.life.Done():
			return
		}
	}
}

// dueForRenewal returns the held deliveries with less than two thirds of their lease left, and the
// first end of their leases. One that is being settled is due with a third left. It marks those as
// lost whose lease has ended. done reports that the claiming has ended and no message is held. It
// takes s.mu.
//
// A delivery after AckTx is not lost by time: while the transaction is open no consumer can claim
// it, and Settled finds out later. If its consumer could not release it meanwhile, it is not
// renewed: after a rollback another consumer gets the message when the lease is over.
func (s *subscription) dueForRenewal(now time.Time) (ds []*delivery, first time.Time, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = now.Add(s.lease)
	for d := range s.held {
		left := d.until.Sub(now)
		switch {
		case left <= 0 && !d.inTx:
			s.lose(d)
			continue
		case d.inTx && d.unwanted:
			continue
		case left > s.lease*2/3, d.state == settling && left > s.lease/3:
			continue
		}
		ds = append(ds, d)
		if !d.inTx && d.until.Before(first) {
			first = d.until
		}
	}
	return ds, first, s.isIdle && len(s.held) == 0
}

// renew renews the leases of ds, from the time of the call on. It waits for the database, until
// first at most, and returns its errors. It marks those as lost that the database has given to
// another consumer, unless a settlement of them is in progress. After an error all leases last as
// long as before. It takes s.mu.
func (s *subscription) renew(ds []*delivery, first time.Time) error {
	ctx, cancel := context.WithDeadline(s.b.calls, first)
	defer cancel()
	_, err := s.renewNow(ctx, ds)
	return err
}

// renewNow renews leases like renew, but waits until ctx ends. It returns for each of ds whether
// its lease was renewed. Only one renewal of a subscription runs at a time. Otherwise a renewal
// would take the row locks of another one for those of a transaction of AckTx.
//
// Returns sqlconn.ErrUnavailable if ctx ends before its renewal begins, and errors of the database.
// It takes s.mu, but does not hold it while it waits.
func (s *subscription) renewNow(ctx context.Context, ds []*delivery) ([]bool, error) {
	select {
	case s.renewing <- struct{}{}:
		defer func() { <-s.renewing }()
	case <-ctx.Done():
		return nil, errNotSent(ctx)
	}
	rows := make([][]any, len(ds))
	before := make([]time.Time, len(ds))
	s.mu.Lock()
	for i, d := range ds {
		rows[i], before[i] = append(d.key(), s.lease.Microseconds()), d.until
	}
	s.mu.Unlock()
	var hit []bool
	var sent time.Time
	write := s.b.conn.Update
	if s.b.postgres() {
		write = s.b.conn.Single
	}
	err := write(ctx, func(ctx context.Context, tx *sqlconn.Tx) (err error) {
		sent = time.Now()
		hit, err = s.b.each(ctx, tx, s.q.text.renew, renewColumns(), rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	if slices.Contains(hit, true) {
		s.setDurable(sent)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range ds {
		switch _, held := s.held[d]; {
		case !held:
		case hit[i]:
			d.until = sent.Add(s.lease)
		case d.inTx, d.until != before[i]: // the row was locked by a transaction of AckTx
		case d.state != settling: // a settlement may have been executed
			s.lose(d)
		}
	}
	return hit, nil
}

// findTaken looks for deliveries with a transaction of AckTx that another consumer has claimed.
// Their transaction was rolled back, and a renewal does not see that. It waits for the database,
// for at most a sixth of the lease for each delivery whose lease is over. It takes s.mu, but does
// not hold it while it waits.
func (s *subscription) findTaken(now time.Time) {
	s.mu.Lock()
	var ds []*delivery
	for d := range s.held {
		if d.inTx && !now.Before(d.until) {
			ds = append(ds, d)
		}
	}
	s.mu.Unlock()
	for _, d := range ds {
		ctx, cancel := context.WithTimeout(s.b.calls, s.lease/6)
		s.checkTaken(ctx, d)
		cancel()
	}
}

// checkTaken marks d as lost if its row has the token of another claim. It ignores errors of the
// database. It takes s.mu, but does not hold it while it waits.
func (s *subscription) checkTaken(ctx context.Context, d *delivery) {
	token, _, err := d.readToken(ctx, "")
	if err == nil && token != nil && *token != d.token {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.inTx = false
		s.lose(d)
	}
}
