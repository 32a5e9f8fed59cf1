package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func Example() {
	if err := run(context.Background(), "mem://", "default", time.Minute, func(text string) { panic(text) }); err != nil {
		panic(err)
	}
	// Output:
	// add:     1 + 2 = 3
	// retried: succeeded in run 3
	// failed:  run 2 failed, as it was asked to
}

// With a server in the process it needs nobody else either.
// Promises: S1.
func TestEmbedded(t *testing.T) {
	if err := run(t.Context(), "nats-embedded://"+t.TempDir(), "default", time.Minute, func(text string) { t.Error(text) }); err != nil {
		t.Error(err)
	}
}

// Without a worker the program says what it waits for, and gives up in time.
func TestNoWorker(t *testing.T) {
	url := testserver.RequireRabbit(t).URL() + "?namespace=" + testserver.Namespace()
	notes := make(chan string, 1)
	err := run(t.Context(), url, "default", patience+3*time.Second, func(text string) { notes <- text })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is a worker listening on queue default") {
		t.Errorf("error is %v", err)
	}
	select {
	case note := <-notes:
		if !strings.Contains(note, "waiting for a worker") || !strings.HasSuffix(note, "-queue default") {
			t.Errorf("the note is %q", note)
		}
	default:
		t.Error("nothing was said while it waited")
	}
}

// Without a broker the program says so at once, and what to do.
func TestNoBroker(t *testing.T) {
	err := run(t.Context(), "amqp://u:hunter2@127.0.0.1:1/", "default", time.Minute, func(text string) { t.Error(text) })
	if !errors.Is(err, broker.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v, want one that is ErrUnavailable and holds no password", err)
	}
	if err != nil && !strings.Contains(err.Error(), "no RabbitMQ answers at 127.0.0.1:1 (connection refused); start one") {
		t.Errorf("error is %v, want one that says what to do", err)
	}
}
