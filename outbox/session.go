package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// minIdle and maxIdle limit the wait after a read that found nothing. It doubles each time.
	minIdle = 50 * time.Millisecond
	maxIdle = time.Second
	// wakeGap is the shortest wait after such a read, since other changes of the database wake too.
	wakeGap = 10 * time.Millisecond

	// awayBase and awayMax limit the wait after an error of the database or without a broker.
	awayBase = 50 * time.Millisecond
	awayMax  = 5 * time.Second

	// awayAgain is the number of errors in a row after which messages that could not be sent count as
	// failed.
	awayAgain = 2

	// retryBase and retryMax limit the wait after a failed publish of one message.
	retryBase = 250 * time.Millisecond
	retryMax  = time.Minute
)

// backoff returns the wait after attempt number n, from 0: base, doubled each time, at most most.
func backoff(base, most time.Duration, n int) time.Duration {
	for ; n > 0 && base < most; n-- {
		base *= 2
	}
	return min(base, most)
}

// session is one Run of a Relay. One goroutine uses it, so a bucket is never released during a
// publish of its messages.
type session struct {
	Config

	name     string
	declared bool
	share    Share
	leased   time.Time  // before the last call of Lease that succeeded; zero: none has
	pending  Settlement // outcomes that are not stored yet
	idle     time.Duration
	away     int  // errors in a row
	failing  bool // the last publish had failures
}

// run runs passes until ctx ends. It returns nil then, or ErrClosed.
func (s *session) run(ctx context.Context, changed <-chan struct{}) error {
	for {
		found, err := s.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, broker.ErrClosed) {
			return err
		}
		if err != nil {
			if s.away == 0 { // once for each interruption
				s.Logger.WarnContext(ctx, "outbox: the relay is interrupted and tries again", "error", err)
			}
			wake.Sleep(ctx, backoff(awayBase, awayMax, s.away))
			s.away++
			continue
		}
		s.away = 0
		if found {
			s.idle = minIdle
			continue
		}
		s.rest(ctx, changed)
	}
}

// rest waits until a change, the next poll or the next lease, whichever is first.
func (s *session) rest(ctx context.Context, changed <-chan struct{}) {
	if !wake.Sleep(ctx, wakeGap) {
		return
	}
	t := time.NewTimer(min(s.idle, time.Until(s.nextLease())))
	defer t.Stop()
	select {
	case <-changed:
		s.idle = minIdle
	case <-t.C:
		s.idle = min(2*s.idle, maxIdle)
	case <-ctx.Done():
	}
}

// nextLease returns when the leases are renewed: after a third, or earlier while buckets are
// missing.
func (s *session) nextLease() time.Time {
	if s.share.Missing > 0 {
		return s.leased.Add(s.Lease / 30)
	}
	return s.leased.Add(s.Lease / 3)
}

// pass renews the leases if it is time, and publishes one page of messages. It reports whether
// there were messages.
func (s *session) pass(ctx context.Context) (found bool, err error) {
	if !s.declared && len(s.Queues) > 0 {
		declaring, cancel := context.WithTimeout(ctx, s.Lease/3)
		defer cancel()
		if err := broker.Declare(declaring, s.Broker, s.Queues...); err != nil {
			return false, err
		}
	}
	s.declared = true
	if err := s.settle(ctx); err != nil {
		return false, err // before a bucket is released: another relay would send its messages again
	}
	if !time.Now().Before(s.nextLease()) {
		if err := s.lease(ctx); err != nil {
			return false, err
		}
	}
	if len(s.share.Buckets) == 0 {
		return false, nil
	}
	reading, cancel := context.WithTimeout(ctx, s.Lease/3)
	defer cancel()
	rows, err := s.Store.Read(reading, s.share.Buckets)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	err = s.publish(ctx, rows)
	return true, errors.Join(err, s.settle(ctx))
}

// lease renews the leases.
func (s *session) lease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Lease/3)
	defer cancel()
	begun := time.Now()
	share, err := s.Store.Lease(ctx, s.name, s.Lease)
	if err != nil {
		return err
	}
	s.share, s.leased = share, begun
	return nil
}

// settle stores the pending outcomes. After an error they stay pending: a message that was
// confirmed is not published again.
func (s *session) settle(ctx context.Context) error {
	if len(s.pending.Sent)+len(s.pending.Failed)+len(s.pending.Dead) == 0 {
		return nil
	}
	ctx, cancel := s.storing(ctx)
	defer cancel()
	if err := s.Store.Settle(ctx, s.pending); err != nil {
		return err
	}
	s.pending = Settlement{}
	return nil
}

// leave stores the pending outcomes and releases the buckets.
func (s *session) leave(ctx context.Context) error {
	if err := s.settle(ctx); err != nil || s.leased.IsZero() {
		return err
	}
	ctx, cancel := s.storing(ctx)
	defer cancel()
	return s.Store.Leave(ctx, s.name)
}

// storing returns a context for a change of the store, which the end of ctx does not interrupt.
func (s *session) storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(s.Lease/3, stepTime))
}

// publish publishes rows in waves and adds the outcomes to the pending ones. A wave has one message
// of each key, so that none is sent before the one before it is confirmed. It ends before the
// leases do; then the remaining rows are read again.
//
// Returns ErrUnavailable if the broker could not be reached for a whole wave, and ErrClosed.
func (s *session) publish(ctx context.Context, rows []Row) error {
	publishing, stop := lasting(ctx, s.leased.Add(s.Lease*2/3))
	defer stop()
	stopped := make(map[string]bool) // keys with a failure
	for len(rows) > 0 && ctx.Err() == nil && publishing.Err() == nil {
		var wave, later []Row
		taken := make(map[string]bool)
		for _, r := range rows {
			switch k := r.OrderKey; {
			case k != "" && stopped[k]:
			case k != "" && taken[k]:
				later = append(later, r)
			default:
				taken[k] = true
				wave = append(wave, r)
			}
		}
		ms := make([]broker.Outgoing, len(wave))
		for i := range wave {
			ms[i] = wave[i].Outgoing
		}
		var unsent []*Row
		var away, closed error
		for i, err := range broker.BatchErrors(broker.PublishBatch(publishing, s.Broker, ms), len(ms)) {
			if s.outcome(&wave[i], err) {
				continue
			}
			stopped[wave[i].OrderKey] = true
			switch {
			case errors.Is(err, broker.ErrIndeterminate):
			case errors.Is(err, broker.ErrClosed):
				closed = err
			case errors.Is(err, broker.ErrUnavailable):
				unsent, away = append(unsent, &wave[i]), err
			}
		}
		if closed != nil {
			return closed
		}
		all := len(unsent) == len(wave)
		// A broker can be away for some queues only. Their messages must not hide those behind them.
		if !all || s.away >= awayAgain {
			for _, r := range unsent {
				s.fail(r, away, min(backoff(retryBase, retryMax, r.Failures), awayMax))
			}
		}
		if all {
			return away
		}
		rows = later
	}
	s.report(ctx)
	return nil
}

// outcome adds the outcome of a publish to the pending ones. It returns false if the row stops its
// key. A row that was certainly not sent, since there is no connection, has no outcome.
func (s *session) outcome(r *Row, err error) bool {
	switch {
	case err == nil:
		s.Metrics.OutboxSent.Inc(1)
		s.pending.Sent = append(s.pending.Sent, r.Seq)
		return true
	case errors.Is(err, broker.ErrIndeterminate): // this class counts first
	case errors.Is(err, broker.ErrMalformed), errors.Is(err, broker.ErrTooLarge), errors.Is(err, broker.ErrUnsupported):
		s.Logger.Error("outbox: a message can never be sent and is dead now", "id", r.Message.ID, "queue", r.Queue, "error", err)
		s.pending.Dead = append(s.pending.Dead, Failure{Seq: r.Seq, Reason: err.Error()})
		return true
	case errors.Is(err, broker.ErrUnavailable), errors.Is(err, broker.ErrClosed):
		return false
	}
	s.Metrics.OutboxFailed.Inc(1)
	s.fail(r, err, backoff(retryBase, retryMax, r.Failures))
	return false
}

// fail adds a failed publish to the pending outcomes.
func (s *session) fail(r *Row, err error, after time.Duration) {
	s.pending.Failed = append(s.pending.Failed, Failure{Seq: r.Seq, Reason: err.Error(), After: after})
}

// report logs the failures of a publish, unless the last publish had some too.
func (s *session) report(ctx context.Context) {
	n := len(s.pending.Failed)
	if n > 0 && !s.failing {
		s.Logger.WarnContext(ctx, "outbox: messages could not be sent and are tried again", "messages", n, "error", s.pending.Failed[0].Reason)
	}
	s.failing = n > 0
}
