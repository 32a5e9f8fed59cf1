package redisevents_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/eventstest"
	"github.com/swarmiji/swarmiji/events/redisevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// The bus works over TLS, and no listener connects to a server with an unknown authority.
func TestTLS(t *testing.T) {
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnRedis(t, testserver.RedisConfig{TLS: files})
	with := func(c *tls.Config) *redis.UniversalOptions {
		o := options(srv, srv.TLSAddr())
		o.TLSConfig = c
		return o
	}
	keep := keeping(events.Retention{Age: time.Minute})
	b := open(t, with(trusting), "tls", keep)
	live, kept := subscribe(t, b, events.Filter{}), replay(t, b, time.Time{})
	publish(t, b, 1)
	want(t, live, 1, 2)
	want(t, kept, 1, 2)

	stranger := open(t, with(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}), "tls", keep)
	var calls sync.WaitGroup
	for name, call := range map[string]func(ctx context.Context) error{
		"Subscribe": func(ctx context.Context) error { _, err := stranger.Subscribe(ctx, events.Filter{}); return err },
		"Replay": func(ctx context.Context) error {
			_, err := stranger.Replay(ctx, events.Filter{}, time.Time{})
			return err
		},
	} {
		calls.Go(func() { // the call tries until its ctx ends, which must leave time for one handshake
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := call(ctx); !errors.Is(err, events.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%s to a server of an unknown authority: %v, want ErrUnavailable because of its certificate", name, err)
			}
		})
	}
	calls.Wait()
}

// A listener that the server disconnects because it is slow subscribes again and receives later
// events.
func TestListenerThatTheServerCutsOff(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{Conf: "client-output-buffer-limit pubsub 100kb 0 0"})
	proxy := testserver.NewProxy(t, srv.Addr())
	publisher := open(t, options(srv, srv.Addr()), "slow")
	s := subscribe(t, open(t, options(srv, proxy.Addr()), "slow"), events.Filter{})
	quick := subscribe(t, publisher, events.Filter{})
	proxy.Bandwidth(1)
	cut := func() bool {
		return do(t, srv, "PUBSUB", "NUMSUB", "swj:ev:slow").([]any)[1].(int64) < 2
	}
	next := 0
	for ctx := testwait.Long(t); !cut(); next += 1000 {
		if ctx.Err() != nil {
			t.Fatal("the server does not cut off the listener")
		}
		publishAll(t, publisher, quick, next, next+1000)
	}
	proxy.Heal()
	awaitEvents(t, publisher, s)
}

// TestCluster runs the suite on a cluster: events of one publisher keep their order, whichever node
// the bus connects to.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	o := &redis.UniversalOptions{Addrs: cluster.Addrs(), Username: cluster.User(), Password: cluster.Password()}
	eventstest.Run(t, func(t testing.TB) *eventstest.Harness {
		if !strings.Contains(t.Name(), "/retain/") && !strings.Contains(t.Name(), "/fault/") {
			testserver.Thorough(t) // only kept events depend on the node of their key
		}
		return harnessOf(o)
	})
}

// Subscribe and Replay return at once if the server refuses the channel.
func TestRefusedChannelIsToldAtOnce(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	do(t, srv, "ACL", "SETUSER", "limited", "on", ">hunter2", "~*", "+@all", "resetchannels")
	o := &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: "limited", Password: "hunter2"}
	b := open(t, o, "acl", keeping(events.Retention{Age: time.Minute}))
	_, err := b.Subscribe(testwait.Long(t), events.Filter{})
	_, replayErr := b.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	for _, err := range []error{err, replayErr} {
		if !errors.Is(err, events.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("without permission: %v, want ErrUnavailable that says why, before ctx ends", err)
		}
	}
}

// The warning about an interrupted listener includes the cause.
func TestLogSaysWhyAListenerWasInterrupted(t *testing.T) {
	srv := testserver.RequireRedis(t)
	var log bytes.Buffer
	var mu sync.Mutex
	b := open(t, options(srv, srv.Addr()), testserver.Namespace(), func(c *redisevents.Config) {
		c.Logger = slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))
	})
	s := subscribe(t, b, events.Filter{})
	if err := srv.CloseAllConnections(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	awaitEvents(t, b, s)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "interrupted") || !strings.Contains(log.String(), "EOF") {
		t.Errorf("the log does not tell that the connection was closed: %s", &log)
	}
}

// locked is a writer that is safe for concurrent use.
type locked struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
