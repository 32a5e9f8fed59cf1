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

// subscription takes jobs ahead of those who call Receive, as far as its prefetch allows.
type subscription struct {
	broker *Broker
	keys   keys

	ready  chan *delivery // taken and not handed out
	faults chan error     // what waiting cannot mend, for whoever waits in Receive
	wakeup wake.Signal    // holds a value when there is a reason to look at once
	turn   chan struct{}  // held while jobs are taken
	stop   chan struct{}  // closed by Close
	done   chan struct{}  // closed when nothing is taken any more
	once   sync.Once      // for stop

	life   context.Context // ends when even what is being taken is given up
	giveUp context.CancelFunc

	mu       sync.Mutex // guards all below
	prefetch int        // how many may be held; -1: no limit
	held     int        // taken and not settled
}

// ahead is how many jobs are taken before anybody asks for them, and the most that one trip takes.
const ahead = 64

func newSubscription(b *Broker, k keys, prefetch int) *subscription {
	if prefetch <= 0 {
		prefetch = -1
	}
	s := &subscription{
		broker: b, keys: k, prefetch: prefetch,
		ready: make(chan *delivery, ahead), faults: make(chan error), wakeup: wake.New(), turn: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.giveUp = context.WithCancel(b.life)
	return s
}

// Receive implements [broker.Subscription].
func (s *subscription) Receive(ctx context.Context) (broker.Delivery, error) {
	for {
		select {
		case <-s.stop:
			return nil, errClosed
		default:
		}
		select {
		case d := <-s.ready: // also if ctx is done
			if d.handOut(ctx) {
				return d, nil
			}
			continue
		default:
		}
		select {
		case d := <-s.ready:
			if d.handOut(ctx) {
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

// fetch takes jobs until Close. An idle queue is looked at less and less often: a list has no way to call somebody who must
// take and note in one step, since a blocking pop cannot be part of a script.
func (s *subscription) fetch() {
	defer close(s.done)
	gap := s.broker.cfg.PollEvery
	for {
		full, n, err := s.take()
		switch {
		case err != nil:
			s.report(err)
			gap = s.broker.cfg.PollEvery * slowestPolls
		case n > 0:
			gap = s.broker.cfg.PollEvery
			s.look()
		}
		if !s.pause(full, gap) {
			return
		}
		if n == 0 && !full {
			gap = min(2*gap, s.broker.cfg.PollEvery*slowestPolls)
		}
	}
}

// pause waits for the next look, or reports that there will be none. A full subscription looks when it has room again.
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

// look makes the subscription look at once.
func (s *subscription) look() {
	s.wakeup.Notify()
}

// report tells one caller of Receive, if any, of an error that waiting does not mend. All others are waited out.
func (s *subscription) report(err error) {
	if !permanent(err) {
		return
	}
	select {
	case s.faults <- err:
	default:
	}
}

// take takes as many jobs as there is room for.
func (s *subscription) take() (full bool, n int, err error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	room := s.room()
	if room == 0 {
		return true, 0, nil
	}
	b := s.broker
	before := time.Now()
	answer, err := b.texts(s.life, "take", b.scripts.take, []string{s.keys.jobs, s.keys.progress}, room)
	if err != nil || len(answer) == 0 {
		return false, 0, err
	}
	start, payloads := answer[0], answer[1:]
	taken := make([]*delivery, len(payloads))
	for i, p := range payloads { // all of them, before anything takes time
		taken[i] = newDelivery(s, p, start, before)
		b.hold(taken[i])
	}
	s.add(len(taken))
	for _, d := range taken {
		if d.message, err = decode(d.payload); err != nil {
			s.broken(d, err)
			continue
		}
		s.ready <- d // there is room: nobody else takes
	}
	return false, len(taken), nil
}

// broken puts aside what nobody can read. It was never anybody's, so that nobody else can say so.
func (s *subscription) broken(d *delivery, cause error) {
	s.broker.logBroken(s.keys.queue, "", cause.Error())
	if err := d.settle(s.broker.life, "broken", s.keys.broken, ""); err != nil {
		s.broker.log(slog.LevelWarn, s.keys.queue, "it stays in progress, for a monitor", slog.Any("error", err))
	}
}

// room is how many jobs may be taken now.
func (s *subscription) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := cap(s.ready) - len(s.ready)
	if s.prefetch >= 0 {
		room = min(room, s.prefetch-s.held)
	}
	return max(room, 0)
}

// add counts held jobs; a negative n makes room.
func (s *subscription) add(n int) {
	s.mu.Lock()
	s.held += n
	s.mu.Unlock()
	if n < 0 {
		s.look()
	}
}

// SetPrefetch implements [broker.Resizer]. When it returns, what is taken was taken under the new limit.
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
	case s.turn <- struct{}{}:
		<-s.turn
	case <-ctx.Done():
		return fmt.Errorf("hworker set prefetch: %w", ctx.Err())
	}
	s.look()
	return nil
}

// closing is how long Close waits for what is just being taken. If it is given up, nobody holds it until a monitor finds it.
const closing = 2 * time.Second

// halt ends Receive and the taking of jobs.
func (s *subscription) halt() { s.once.Do(func() { close(s.stop) }) }

// Close implements [broker.Subscription].
func (s *subscription) Close(ctx context.Context) error {
	s.halt()
	patience, cancel := context.WithTimeout(ctx, closing)
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
		default: // somebody else closes it too
		}
	}
	slices.Reverse(back) // each goes in front of those that were given back before
	var errs []error
	for _, d := range back {
		errs = append(errs, d.takeBack(ctx))
	}
	return errors.Join(errs...)
}
