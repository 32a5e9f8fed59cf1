package hworkerbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// subscription claims jobs before Receive is called, as far as its prefetch allows.
type subscription struct {
	broker *Broker
	keys   keys

	ready    chan *delivery // claimed and not returned by Receive
	faults   chan error     // errors that waiting does not remove, for a waiting Receive
	wakeup   wake.Signal    // holds a value when there is a reason to poll at once
	claiming chan struct{}  // held while jobs are claimed
	stop     chan struct{}  // closed by Close
	done     chan struct{}  // closed when no further job is claimed
	once     sync.Once      // for stop

	life   context.Context // ends when the claim in progress is given up too
	giveUp context.CancelFunc

	mu       sync.Mutex // guards the fields below
	prefetch int        // limit of held jobs; -1: no limit
	held     int        // claimed and not settled
	full     bool       // the claiming goroutine waits until Receive has made room in ready
}

// maxAhead limits the jobs that are claimed before Receive is called, and the jobs of one call.
const maxAhead = 64

// newSubscription returns a subscription to the queue with the keys k. It does not start it. A
// prefetch of 0 or less means no limit.
func newSubscription(b *Broker, k keys, prefetch int) *subscription {
	if prefetch <= 0 {
		prefetch = -1
	}
	s := &subscription{
		broker: b, keys: k, prefetch: prefetch,
		ready: make(chan *delivery, maxAhead), faults: make(chan error), wakeup: wake.New(), claiming: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.giveUp = context.WithCancel(b.life)
	return s
}

// Receive implements [broker.Subscription]. It blocks until a job is claimed, ctx ends, the
// subscription is closed, or an error occurs that waiting does not remove. A claimed job is
// returned even if ctx has ended. It may wait shortly for the server, to renew the job's time. A
// job that was lost while it waited here is skipped. Returns ctx's error, ErrClosed, or that
// error: ErrAccess or ErrUnsupported.
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	for {
		select {
		case <-s.stop:
			return nil, errClosed
		default:
		}
		select {
		case d := <-s.ready: // even if ctx is done
			s.wakeIfFull()
			if d.markReceived(ctx) {
				return d, nil
			}
			continue
		default:
		}
		select {
		case d := <-s.ready:
			s.wakeIfFull()
			if d.markReceived(ctx) {
				return d, nil
			}
		case err := <-s.faults:
			return nil, err
		case <-s.stop:
		case <-ctx.Done():
			return nil, fmt.Errorf("hworker receive: %w", ctx.Err())
		}
	}
}

// fetch claims jobs until Close, and closes s.done at its end. It polls an idle queue at
// intervals that double up to slowestPolls times Config.PollEvery. After an error it waits for
// the longest interval. A list cannot notify a consumer that must claim and note a job in one
// step: a blocking pop cannot be part of a script.
func (s *subscription) fetch() {
	defer close(s.done)
	gap := s.broker.cfg.PollEvery
	for {
		full, n, err := s.claim()
		switch {
		case err != nil:
			s.report(err)
			gap = s.broker.cfg.PollEvery * slowestPolls
		case n > 0:
			gap = s.broker.cfg.PollEvery
			s.wake()
		}
		if !s.pause(full, gap) {
			return
		}
		if n == 0 && !full {
			gap = min(2*gap, s.broker.cfg.PollEvery*slowestPolls)
		}
	}
}

// pause blocks until the next poll: after gap, or when the subscription is woken. If full is true
// it waits only to be woken. It returns false after Close.
func (s *subscription) pause(full bool, gap time.Duration) bool {
	timer := time.NewTimer(gap)
	defer timer.Stop()
	due := timer.C
	if full {
		due = nil
	}
	select {
	case <-s.stop:
		return false
	case <-s.wakeup:
	case <-due:
	}
	select {
	case <-s.stop:
		return false
	default:
		return true
	}
}

// wake makes the subscription poll at once.
func (s *subscription) wake() {
	s.wakeup.Notify()
}

// report passes an error that waiting does not remove to one waiting call of Receive, if there is
// one. It ignores other errors.
func (s *subscription) report(err error) {
	if !permanent(err) {
		return
	}
	select {
	case s.faults <- err:
	default:
	}
}

// claim claims as many jobs as the prefetch allows, at most maxAhead, and makes them ready for
// Receive. It waits for the server, with s.claiming held. It takes s.mu and b.mu, but not while it
// waits. Jobs that cannot be read go to the broken jobs, see settleBroken.
//
// It returns n, the number of claimed jobs, including those that cannot be read. full is true if no
// job may be claimed, see room: then it does not ask the server. Returns the error of the script.
func (s *subscription) claim() (full bool, n int, err error) {
	s.claiming <- struct{}{}
	defer func() { <-s.claiming }()
	room := s.room()
	if room == 0 {
		return true, 0, nil
	}
	b := s.broker
	before := time.Now()
	answer, err := b.runTexts(s.life, "take", b.scripts.take, []string{s.keys.jobs, s.keys.progress}, room)
	if err != nil || len(answer) == 0 {
		return false, 0, err
	}
	start, payloads := answer[0], answer[1:]
	taken := make([]*delivery, len(payloads))
	for i, p := range payloads { // all of them first, before anything that takes time
		taken[i] = newDelivery(s, p, start, before)
		b.addHeld(taken[i])
	}
	s.add(len(taken))
	for _, d := range taken {
		if d.message, err = decode(d.payload); err != nil {
			s.settleBroken(d, err)
			continue
		}
		s.ready <- d // there is room, because no other goroutine claims
	}
	return false, len(taken), nil
}

// settleBroken moves a job that cannot be read to the broken jobs and logs it. It waits for the
// server. After an error, which is logged, the job stays in progress until a monitor finds it: no
// consumer received it that could settle it.
func (s *subscription) settleBroken(d *delivery, cause error) {
	s.broker.logBroken(s.keys.queue, "", cause.Error())
	if err := d.settle(s.broker.life, "broken", s.keys.broken, ""); err != nil {
		s.broker.log(slog.LevelWarn, s.keys.queue, "the job stays in progress until a monitor finds it", slog.Any("error", err))
	}
}

// wakeIfFull wakes the claiming goroutine if it waits for room in s.ready and half of that is free.
// Call it after a job was removed from s.ready. It takes s.mu.
func (s *subscription) wakeIfFull() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full && len(s.ready) <= cap(s.ready)/2 {
		s.full = false
		s.wake()
	}
}

// room returns how many jobs may be claimed now: as many as the prefetch allows, and at most
// maxAhead minus those that wait for Receive. It sets s.full if so many wait. It takes s.mu.
func (s *subscription) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := cap(s.ready) - len(s.ready)
	s.full = room == 0
	if s.prefetch >= 0 {
		room = min(room, s.prefetch-s.held)
	}
	return max(room, 0)
}

// add adds n to the number of held jobs. For a negative n it wakes the claiming goroutine. It takes
// s.mu.
func (s *subscription) add(n int) {
	s.mu.Lock()
	s.held += n
	s.mu.Unlock()
	if n < 0 {
		s.wake()
	}
}

// SetPrefetch implements [broker.Resizer]. When it returns nil, further jobs are claimed under the
// new limit; 0 or less stops the claiming. It waits for the claim in progress. If ctx ends first
// it returns ctx's error, and the limit is valid nevertheless. Returns ErrClosed after Close. It
// takes s.mu, but not while it waits.
func (s *subscription) SetPrefetch(ctx context.Context, n int) error {
	select {
	case <-s.stop:
		return errClosed
	default:
	}
	s.mu.Lock()
	s.prefetch = max(n, 0)
	s.mu.Unlock()
	select {
	case s.claiming <- struct{}{}:
		<-s.claiming
	case <-ctx.Done():
		return fmt.Errorf("hworker set prefetch: %w", ctx.Err())
	}
	s.wake()
	return nil
}

// closeTimeout limits the time that Close waits for the claim in progress. If that is given up, its
// jobs are in progress without a holder until a monitor finds them.
const closeTimeout = 2 * time.Second

// stopReceiving ends Receive and the claiming. It does not wait.
func (s *subscription) stopReceiving() { s.once.Do(func() { close(s.stop) }) }

// Close implements [broker.Subscription]. It ends the claiming and waits up to 2 s for the claim
// in progress. Then it returns the jobs that Receive has not returned to the front of the queue,
// and waits for the server. Jobs that Receive has returned stay held. It returns the errors of all
// jobs joined; those jobs stay in progress until a monitor finds them. It takes b.mu, but not
// while it waits.
func (s *subscription) Close(ctx context.Context) error {
	s.stopReceiving()
	patience, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	select {
	case <-s.done:
	case <-patience.Done():
	}
	s.giveUp()
	<-s.done
	b := s.broker
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
	var back []*delivery
	for len(s.ready) > 0 {
		select {
		case d := <-s.ready:
			back = append(back, d)
		default: // another call of Close empties it too
		}
	}
	slices.Reverse(back) // each goes before the jobs that were returned earlier
	var errs []error
	for _, d := range back {
		errs = append(errs, d.returnToQueue(ctx))
	}
	return errors.Join(errs...)
}
