package amqpevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/amqpconn"
)

// stream is what subscriptions of both kinds have in common: a goroutine that reads over one channel after the other.
type stream struct {
	bus    *Bus
	from   string // the exchange or queue, for the log
	ending func() // called by end; nil: nothing

	stop  context.CancelFunc
	ctx   context.Context // ends when the subscription does
	ended chan struct{}   // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when run has consumed for the first time, or openErr is set
	openErr  error
}

// start runs run in its goroutine until the stream ends, and waits until it has called open. It is called once.
func (s *stream) start(ctx context.Context, b *Bus, from string, run func(ctx context.Context, ch *amqpconn.Channel) error) error {
	s.bus, s.from = b, from
	s.ended, s.opened = make(chan struct{}), make(chan struct{})
	s.ctx, s.stop = context.WithCancel(context.Background())
	b.mu.Lock()
	if b.closed.Load() {
		b.mu.Unlock()
		s.stop()
		return events.ErrClosed
	}
	b.streams[s] = struct{}{}
	b.tasks.Add(1)
	b.mu.Unlock()
	go func() {
		defer b.tasks.Done()
		defer close(s.ended)
		b.receiving.Supervise(s.ctx, run, s.report)
		s.open(amqpconn.ErrClosed) // nobody may wait for it any more
	}()
	var err error
	select {
	case <-s.opened:
		err = s.openErr
	case <-ctx.Done():
		if _, err = b.receiving.Session(ctx); err == nil { // which says why there is none, as far as anybody knows
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		s.end() // the goroutine ends when the broker has answered, or with the connection
		return failure("listener", err)
	}
	return nil
}

// open tells start that the stream is open, or why it cannot be. Only the first call counts.
func (s *stream) open(err error) {
	s.openOnce.Do(func() {
		s.openErr = err
		close(s.opened)
	})
}

// report is told why a run ended.
func (s *stream) report(err error) {
	select {
	case <-s.opened:
		s.bus.cfg.Logger.LogAttrs(s.ctx, slog.LevelWarn, "event listener interrupted, trying again",
			slog.String("from", s.from), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) { // waiting does not mend it
			s.open(err)
		}
	}
}

// end ends the stream without waiting.
func (s *stream) end() {
	s.stop()
	if s.ending != nil {
		s.ending()
	}
	s.bus.mu.Lock()
	delete(s.bus.streams, s)
	s.bus.mu.Unlock()
}

// Close implements [events.Subscription]. When ctx ends first the consumer, and a queue of its own, may live until the
// connection ends.
func (s *stream) Close(ctx context.Context) error {
	s.end()
	select {
	case <-s.ended:
		return nil
	default:
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqp listener: closing: %w", ctx.Err())
	}
}
