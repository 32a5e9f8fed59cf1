package redislimit_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/limittest"
	"github.com/swarmiji/swarmiji/limit/redislimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

func opened(t *testing.T, o *redis.UniversalOptions, namespace string) *redislimit.Limiter {
	t.Helper()
	l, err := redislimit.New(redislimit.Config{Redis: o, Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func options(srv *testserver.Redis) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: srv.User(), Password: srv.Password()}
}

func TestLimiter(t *testing.T) {
	srv := testserver.RequireRedis(t)
	limittest.Run(t, func(*testing.T) func(*testing.T) limit.Limiter {
		ns := testserver.Namespace()
		return func(t *testing.T) limit.Limiter { return opened(t, options(srv), ns) }
	})
}

// TestCluster shows that all limits of a namespace are in one slot, so that one script can acquire
// several permits on a cluster.
func TestCluster(t *testing.T) {
	c := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	limittest.Run(t, func(*testing.T) func(*testing.T) limit.Limiter {
		ns := testserver.Namespace()
		return func(t *testing.T) limit.Limiter {
			return opened(t, &redis.UniversalOptions{Addrs: c.Addrs(), Username: c.User(), Password: c.Password(), IsClusterMode: true}, ns)
		}
	})
}

// TestNothingStays shows that all keys expire, including those of a dead process.
func TestNothingStays(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	l := opened(t, options(srv), ns)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if d, err := l.Acquire(ctx, "dead", 100*time.Millisecond, limit.Permit{Key: "a", Max: 1, Rate: 100}); err != nil || !d.Granted {
		t.Fatal(d, err)
	}
	keys := func() int {
		v, err := srv.Do(ctx, "KEYS", "swj:limit:{"+ns+"}:*")
		if err != nil {
			t.Fatal(err)
		}
		return len(v.([]any))
	}
	if n := keys(); n != 3 {
		t.Errorf("%d keys while it is held", n)
	}
	for keys() > 0 {
		<-time.After(20 * time.Millisecond)
	}
}

// TestUnavailable shows that a missing answer is limit.ErrUnavailable, and contains no secret.
func TestUnavailable(t *testing.T) {
	l := opened(t, &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, Password: "hush"}, "x")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, "1", time.Second, limit.Permit{Key: "a", Max: 1}); !errors.Is(err, limit.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestNew shows that all problems of a configuration are returned.
func TestNew(t *testing.T) {
	_, err := redislimit.New(redislimit.Config{Namespace: "a.b"})
	if err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 2 {
		t.Errorf("%v", err)
	}
}
