package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
)

// shared is the node of this test binary. It is the one variable of the package: a start costs seconds, so the tests of a
// binary share one, and only the end of the process ends it.
var shared struct {
	mu   sync.Mutex
	node *Rabbit
	err  error
}

// RequireRabbit returns the node that all tests of this binary share, started by the first call and running whatever an
// earlier test did to it. It ends with the process. Without RabbitMQ the test is skipped, see the package comment.
func RequireRabbit(tb testing.TB) *Rabbit {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	switch {
	case shared.err != nil: // once it could not be started, no further test waits for another try
	case shared.node == nil:
		shared.node, shared.err = StartRabbit(ctx, RabbitConfig{})
	default:
		if err := shared.node.revive(ctx); err != nil {
			giveUp(tb, err)
		}
	}
	if shared.err != nil {
		giveUp(tb, shared.err)
	}
	return shared.node
}

// OwnRabbit starts a node for one test and closes it at the test's end.
func OwnRabbit(tb testing.TB, cfg RabbitConfig) *Rabbit {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	r, err := StartRabbit(ctx, cfg)
	if err != nil {
		giveUp(tb, err)
	}
	tb.Cleanup(func() { closeOf(tb, r.Close) })
	return r
}

// OwnRabbitCluster starts three joined nodes for one test and closes them at the test's end.
func OwnRabbitCluster(tb testing.TB, cfg RabbitConfig) *RabbitCluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*startTime)
	defer cancel()
	c, err := StartRabbitCluster(ctx, 3, cfg)
	if err != nil {
		giveUp(tb, err)
	}
	tb.Cleanup(func() { closeOf(tb, c.Close) })
	return c
}

func closeOf(tb testing.TB, closer func() error) {
	if err := closer(); err != nil {
		tb.Errorf("closing the server: %v", err)
	}
}

// NewVhost makes a virtual host for one test and returns the URL to it; the test's end removes it. It costs more than a
// second: use [Namespace] unless the test needs a vhost, say to delete one or to set its limits.
func (r *Rabbit) NewVhost(tb testing.TB) string {
	tb.Helper()
	name := "v" + strings.ToLower(rand.Text()[:10])
	_, err := r.Ctl(tb.Context(), "add_vhost", name)
	if err == nil {
		_, err = r.Ctl(tb.Context(), "set_permissions", "-p", name, r.user.Username(), ".*", ".*", ".*")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		if _, err := r.Ctl(ctx, "delete_vhost", name); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			tb.Logf("removing vhost %s: %v", name, err) // the node may be down, or the test removed it itself
		}
	})
	return r.URLFor(name)
}
