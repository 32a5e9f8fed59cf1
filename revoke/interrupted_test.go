package revoke_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
)

// interrupted is a bus whose streams fail while it is down.
type interrupted struct {
	*memevents.Bus
	down atomic.Bool
	cut  chan struct{} // closed: the open stream fails
}

func (b *interrupted) Replay(ctx context.Context, f events.Filter, since time.Time) (events.Subscription, error) {
	if b.down.Load() {
		return nil, fmt.Errorf("no route: %w", events.ErrUnavailable)
	}
	sub, err := b.Bus.Replay(ctx, f, since)
	return cutStream{sub, b.cut}, err
}

type cutStream struct {
	events.Subscription
	cut chan struct{}
}

func (s cutStream) Receive(ctx context.Context) (events.Event, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-s.cut:
			cancel(events.ErrUnavailable)
		case <-done:
		}
	}()
	e, err := s.Subscription.Receive(ctx)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return e, err
}

// TestInterruptionsAreLoggedOnce shows that a list logs each interruption of its bus once.
func TestInterruptionsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &interrupted{Bus: memevents.New(memevents.Config{Retain: revoke.Retention()}), cut: make(chan struct{})}
		defer bus.Close(context.Background())
		bus.down.Store(true)
		var log bytes.Buffer
		l, err := revoke.New(revoke.Config{Events: bus, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = l.Ready(t.Context()) }()
		for n := 1; n <= 2; n++ {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if got := strings.Count(log.String(), "revocations cannot be received"); got != n {
				t.Errorf("%d lines after %d interruptions of 10 minutes", got, n)
			}
			bus.down.Store(false)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			cut := bus.cut
			bus.cut = make(chan struct{})
			bus.down.Store(true)
			close(cut)
		}
		bus.down.Store(false)
		time.Sleep(time.Minute)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
