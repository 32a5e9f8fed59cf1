package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// RequireRabbit returns the node that all tests of this binary share. The first call starts it;
// later calls start it again if an earlier test stopped, killed or paused it. The node ends with
// the process. Without RabbitMQ the test is skipped, see the package comment.
func RequireRabbit(tb testing.TB) *Rabbit {
	tb.Helper()
	return require(tb, &shared.rabbit, func(ctx context.Context) (*Rabbit, error) {
		return StartRabbit(ctx, RabbitConfig{})
	})
}

// OwnRabbit starts a node for one test and closes it at the end of the test.
func OwnRabbit(tb testing.TB, cfg RabbitConfig) *Rabbit {
	tb.Helper()
	return own(tb, startTime, func(ctx context.Context) (*Rabbit, error) { return StartRabbit(ctx, cfg) })
}

// OwnRabbitCluster starts three joined nodes for one test and closes them at the end of the test.
func OwnRabbitCluster(tb testing.TB, cfg RabbitConfig) *RabbitCluster {
	tb.Helper()
	return own(tb, 2*startTime, func(ctx context.Context) (*RabbitCluster, error) { return StartRabbitCluster(ctx, 3, cfg) })
}

// NewVhost creates a virtual host for one test and returns its URL. The end of the test removes it.
// Use [Namespace] unless the test needs a vhost, for example to delete one or to set its limits.
func (r *Rabbit) NewVhost(tb testing.TB) string {
	tb.Helper()
	name := "v" + strings.ToLower(rand.Text()[:10])
	_, err := r.Eval(tb.Context(), fmt.Sprintf(`rabbit_vhost:add(<<%[1]q>>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<%[2]q>>, <<%[1]q>>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)`, name, r.user.Username()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		if _, err := r.Eval(ctx, fmt.Sprintf(`rabbit_vhost:delete(<<%q>>, <<"test">>)`, name)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			// the node may be down, or the test removed the vhost itself
			tb.Logf("removing vhost %s: %v", name, err)
		}
	})
	return r.URLFor(name)
}
