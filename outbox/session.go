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

	// outageBase and outageMax limit the wait after an error of the database or without a broker.
	outageBase = 50 * time.Millisecond
	outageMax  = 5 * time.Second

	// outageErrors is the number of errors in a row after which messages that could not be sent count
	// as failed.
	outageErrors = 2

	// retryBase and retryMax limit the wait after a failed publish of one message.
	retryBase = 250 * time.Millisecond
	retryMax  = time.Minute

	// silentTime is the time after which a queue that has confirmed nothing counts as silent. All
	// messages that were sent with its own waited for it. It gets none for restFactor times as long.
	silentTime = time.Second
	restFactor = 4
)

// errSilent is the failure of messages for a queue that rests.
var errSilent = errors.New("the queue confirmed no earlier message in time; it rests, so that others need not wait for it")

// backoff returns the pause after attempt number n, from 0: base, doubled for each further attempt,
// up to most.
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

	name      string
	declared  bool
	share     Share
	leased    time.Time  // before the last call of Lease that succeeded; zero: none has
	pending   Settlement // outcomes that are not stored yet
	idle      time.Duration
	failures  int                  // errors in a row
	failing   bool                 // the last publish had failures
	recovered bool                 // the last page was sent without failures
	rests     map[string]time.Time // until when silent queues get no messages
}

// run repeats pass until ctx ends, and then returns nil. If there are no messages it rests between
// two passes. After an error it logs the first one of a series, waits and tries again. Returns
// ErrClosed if the broker or the store was closed.
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
			if s.failures == 0 { // once for each interruption
				s.Logger.WarnContext(ctx, "outbox: the relay is interrupted and tries again", "error", err)
			}
			wake.Sleep(ctx, backoff(outageBase, outageMax, s.failures))
			s.failures++
			continue
		}
		s.failures = 0
		if found {
			s.idle = minIdle
			continue
		}
		s.rest(ctx, changed)
	}
}

// rest blocks until changed has a value, the next poll or the next renewal of the leases is due, or
// ctx ends. It blocks for at least wakeGap. It doubles the time until the next poll, up to maxIdle,
// unless there was a change.
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

// nextLease returns the time at which the leases are renewed: after a third of Config.Lease, or
// after a thirtieth while buckets of the share are missing.
func (s *session) nextLease() time.Time {
	if s.share.Missing > 0 {
		return s.leased.Add(s.Lease / 30)
	}
	return s.leased.Add(s.Lease / 3)
}

// pass declares the queues if that was not done, stores pending outcomes, renews the leases if it
// is time, and publishes one page of messages. It reports whether there were messages. It waits for
// the store and the broker, and returns the first error of them.
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
	rows, err := s.Store.Read(reading, s.share.Buckets, s.recovered)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	err = s.publish(ctx, rows)
	// After an outage all messages may have failed. A few of them show whether they can be sent again.
	s.recovered = err == nil && len(s.pending.Failed) == 0
	return true, errors.Join(err, s.settle(ctx))
}

// lease renews the leases of the relay and sets s.share and s.leased. It waits for the store. After
// an error it returns that and changes neither.
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

// settle stores the pending outcomes, also after the end of ctx, and waits for the store. After an
// error, which it returns, they stay pending: a message that was confirmed is not published again.
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

// leave stores the pending outcomes and then releases the buckets, also after the end of ctx. If
// the outcomes cannot be stored it returns the error and releases nothing: the buckets become free
// when their leases end.
func (s *session) leave(ctx context.Context) error {
	if err := s.settle(ctx); err != nil || s.leased.IsZero() {
		return err
	}
	ctx, cancel := s.storing(ctx)
	defer cancel()
	return s.Store.Leave(ctx, s.name)
}

// storing returns the context for a change of the store. It ends after a third of the lease, at
// most stepTime. The end of ctx does not end it.
func (s *session) storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(s.Lease/3, stepTime))
}

// publish publishes rows and adds their outcomes to the pending ones. It does so in waves. A wave
// has one message of each key and all messages without a key, and the next wave begins when all of
// them are confirmed. After a failed message the later ones of its key are not sent. Messages for a
// queue that rests fail without a publish. publish ends before the leases do; then the remaining
// rows are read again.
//
// It logs failures. Returns ErrUnavailable if the broker could not be reached for a whole wave, and
// ErrClosed if the broker was closed. It returns nil in all other cases, also when ctx ends.
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
			case time.Now().Before(s.rests[r.Queue]):
				stopped[k] = true
				s.Metrics.OutboxFailed.Inc(1)
				s.fail(&r, errSilent, time.Until(s.rests[r.Queue]))
			default:
				taken[k] = true
				wave = append(wave, r)
			}
		}
		if len(wave) == 0 { // all rest, or have a key with a failure
			break
		}
		ms := make([]broker.Outgoing, len(wave))
		for i := range wave {
			ms[i] = wave[i].Outgoing
		}
		var unsent []*Row
		var unavailable, closed error
		begun := time.Now()
		for i, err := range broker.BatchErrors(broker.PublishBatch(publishing, s.Broker, ms), len(ms)) {
			if s.outcome(&wave[i], err) {
				continue
			}
			stopped[wave[i].OrderKey] = true
			switch {
			case errors.Is(err, broker.ErrIndeterminate):
				s.silent(wave[i].Queue, time.Since(begun))
			case errors.Is(err, broker.ErrClosed):
				closed = err
			case errors.Is(err, broker.ErrUnavailable):
				unsent, unavailable = append(unsent, &wave[i]), err
			}
		}
		if closed != nil {
			return closed
		}
		all := len(unsent) == len(wave)
		// A broker can be unavailable for some queues only. Their messages must not hide those behind
		// them.
		if !all || s.failures >= outageErrors {
			for _, r := range unsent {
				s.fail(r, unavailable, min(backoff(retryBase, retryMax, r.Failures), outageMax))
			}
		}
		if all {
			return unavailable
		}
		rows = later
	}
	s.report(ctx)
	return nil
}

// silent lets a queue rest if it has confirmed nothing for long. A lost connection fails sooner.
func (s *session) silent(queue string, waited time.Duration) {
	if waited < silentTime {
		return
	}
	if s.rests == nil {
		s.rests = make(map[string]time.Time)
	}
	s.rests[queue] = time.Now().Add(restFactor * waited)
}

// outcome adds the outcome of a publish that returned err to the pending ones. It returns true if
// the message was confirmed, or is dead because no broker will accept it. It returns false if the
// message failed; then later rows of its key must wait. A row that was certainly not sent, since
// there is no connection or the broker is closed, has no outcome.
func (s *session) outcome(r *Row, err error) bool {
	switch {
	case err == nil:
		s.Metrics.OutboxSent.Inc(1)
		s.pending.Sent = append(s.pending.Sent, r.Ref())
		return true
	case errors.Is(err, broker.ErrIndeterminate): // this class counts first
	case errors.Is(err, broker.ErrMalformed), errors.Is(err, broker.ErrTooLarge), errors.Is(err, broker.ErrUnsupported):
		s.Logger.Error("outbox: a message can never be sent and is dead now", "id", r.Message.ID, "queue", r.Queue, "error", err)
		s.pending.Dead = append(s.pending.Dead, Failure{Ref: r.Ref(), Reason: err.Error()})
		return true
	case errors.Is(err, broker.ErrUnavailable), errors.Is(err, broker.ErrClosed):
		return false
	}
	s.Metrics.OutboxFailed.Inc(1)
	s.fail(r, err, backoff(retryBase, retryMax, r.Failures))
	return false
}

// fail adds r to the pending outcomes as a failed message, with the text of err, to be tried again
// after the given time.
func (s *session) fail(r *Row, err error, after time.Duration) {
	s.pending.Failed = append(s.pending.Failed, Failure{Ref: r.Ref(), Reason: err.Error(), After: after})
}

// report logs the number of failed messages among the pending outcomes and the first error, unless
// the last call found failures, too.
func (s *session) report(ctx context.Context) {
	n := len(s.pending.Failed)
	if n > 0 && !s.failing {
		s.Logger.WarnContext(ctx, "outbox: messages could not be sent and are tried again", "messages", n, "error", s.pending.Failed[0].Reason)
	}
	s.failing = n > 0
}
