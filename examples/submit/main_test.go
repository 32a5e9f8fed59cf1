package main

import (
	"context"
	"errors"
	"io"
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

// TestNoWorker: without a worker the program gives up in time and names the missing worker.
func TestNoWorker(t *testing.T) {
	url := testserver.RequireRedis(t).URL() + "?namespace=" + testserver.Namespace()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := run(ctx, url, "default", io.Discard)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is a worker listening on queue default") {
		t.Errorf("error is %v", err)
	}
}

// Without a broker the program says so at once, and what to do.
func TestNoBroker(t *testing.T) {
	err := run(t.Context(), "amqp://u:hunter2@127.0.0.1:1/", "default", io.Discard)
	if !errors.Is(err, broker.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error is %v, want one that is ErrUnavailable and holds no password", err)
	}
	if err != nil && !strings.Contains(err.Error(), "no RabbitMQ answers at 127.0.0.1:1 (connection refused); start one") {
		t.Errorf("error is %v, want one that says what to do", err)
	}
}
