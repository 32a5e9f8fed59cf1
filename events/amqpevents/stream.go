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

// stream is the common part of both kinds of subscriptions: a goroutine that reads over one channel
// after the other.
type stream struct {
	bus    *Bus
	from   string // exchange or queue, for log lines
	ending func() // called by end; nil: no call

	stop  context.CancelFunc
	ctx   context.Context // ends with the subscription
	ended chan struct{}   // closed when the goroutine has returned

	openOnce sync.Once
	opened   chan struct{} // closed when run consumes for the first time, or openErr is set
	openErr  error
}

// start runs run on a goroutine, on one channel after the other, until the stream ends. It
// registers s with the bus and blocks until run has called open. It takes b.mu, but not while it
// waits. Call it once.
//
// If ctx ends first, or access is refused, it ends the stream and returns [events.ErrUnavailable]
// without waiting for the goroutine. Returns ErrClosed after Close of the bus.
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
		s.open(amqpconn.ErrClosed) // releases a waiting start
	}()
	var err error
	select {
	case <-s.opened:
		err = s.openErr
	case <-ctx.Done():
		if _, err = b.receiving.Session(ctx); err == nil { // its error says why no session exists
			err = fmt.Errorf("%w: %w", amqpconn.ErrUnavailable, ctx.Err())
		}
	}
	if err != nil {
		s.end() // the goroutine ends when the broker answers, or with the connection
		return failure("listener", err)
	}
	return nil
}

// open reports to start that the stream is open, or the error that prevents it. Only the first call
// has an effect.
func (s *stream) open(err error) {
	s.openOnce.Do(func() {
		s.openErr = err
		close(s.opened)
	})
}

// report handles the end of a run, or the failure to open its channel, with err. Supervise calls it
// on the stream's goroutine and then tries again. It logs a warning if the stream was open. Before
// that it passes only a refusal of access to start, because repeating does not help.
func (s *stream) report(err error) {
	select {
	case <-s.opened:
		s.bus.cfg.Logger.LogAttrs(s.ctx, slog.LevelWarn, "event listener interrupted; trying again",
			slog.String("from", s.from), slog.Any("error", err))
	default:
		if errors.Is(err, amqpconn.ErrAccess) { // repeating does not help
			s.open(err)
		}
	}
}

// end ends the stream, calls s.ending and removes the stream from the bus. It does not wait for the
// goroutine. Further calls change nothing. It takes bus.mu.
func (s *stream) end() {
	s.stop()
	if s.ending != nil {
		s.ending()
	}
	s.bus.mu.Lock()
	delete(s.bus.streams, s)
	s.bus.mu.Unlock()
}

// Close implements [events.Subscription]: it ends the stream and waits for its goroutine. If ctx
// ends first it returns an error with ctx's error, and the consumer and its queue may exist until
// the connection ends. Returns nil if the goroutine has already ended. It takes bus.mu, but not
// while it waits.
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
