package schedule_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/swarmiji/swarmiji/schedule"
)

type ctx = context.Context

func listener(t testing.TB, c schedule.ListenerConfig) *schedule.Listener {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := schedule.NewListener(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running runs l in a goroutine. stop ends it and waits until Run has returned.
func running(t testing.TB, l *schedule.Listener) (stop func()) {
	t.Helper()
	c, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(c) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}
