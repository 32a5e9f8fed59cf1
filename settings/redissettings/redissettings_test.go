package redissettings_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/redissettings"
	"github.com/swarmiji/swarmiji/settings/settingstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

func open(t testing.TB, o redis.UniversalOptions, namespace string) settings.Store {
	t.Helper()
	o.MaxRetryBackoff = 300 * time.Millisecond
	s, err := redissettings.New(redissettings.Config{Redis: &o, Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		srv := testserver.RequireRedis(t)
		line := testserver.NewRelay(t, srv.Addr())
		ns := testserver.Namespace()
		o := redis.UniversalOptions{Addrs: []string{line.Addr()}, Username: srv.User(), Password: srv.Password()}
		return &settingstest.Harness{
			Open:  func(t testing.TB) settings.Store { return open(t, o, ns) },
			Sever: func(testing.TB) { line.Sever() },
			Restart: func(t testing.TB) {
				if err := srv.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			},
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Foreign:  func(t testing.TB) { foreign(t, srv, ns) },
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-redis.json",
		}
	})
}

// TestCluster shows that the values are in one slot, and that watches work on a cluster.
func TestCluster(t *testing.T) {
	c := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	settingstest.Run(t, func(testing.TB) *settingstest.Harness {
		ns := testserver.Namespace()
		o := redis.UniversalOptions{Addrs: c.Addrs(), Username: c.User(), Password: c.Password(), IsClusterMode: true}
		return &settingstest.Harness{
			Open:     func(t testing.TB) settings.Store { return open(t, o, ns) },
			Promises: settingstest.Promises{Exact: true},
		}
	})
}

// foreign writes fields into the hash as another program would.
func foreign(t testing.TB, srv *testserver.Redis, namespace string) {
	t.Helper()
	_, err := srv.Do(testwait.Long(t), "HSET", "swj:settings:{"+namespace+"}", "queue/q/pause", "foreign", "queue/r/pause", "0 {}", "not a key", "7 {}")
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignField shows that Get returns an error that names a field of another program, and List
// logs one.
func TestForeignField(t *testing.T) {
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	logged := &bytes.Buffer{}
	s, err := redissettings.New(redissettings.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{srv.Addr()}, Username: srv.User(), Password: srv.Password()},
		Namespace: ns, Logger: slog.New(slog.NewTextHandler(logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := testwait.Long(t)
	defer s.Close(ctx)
	foreign(t, srv, ns)
	if _, err := s.Get(ctx, "queue/q/pause"); !errors.Is(err, settings.ErrBad) || !strings.Contains(err.Error(), "queue/q/pause") {
		t.Errorf("%v", err)
	}
	if all, err := s.List(ctx, ""); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	for _, key := range []string{"queue/q/pause", "queue/r/pause", "not a key"} {
		if !strings.Contains(logged.String(), key) {
			t.Errorf("no line tells of %q: %s", key, logged)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := redissettings.New(redissettings.Config{Namespace: "a.b"})
	if err == nil || !strings.Contains(err.Error(), "Namespace") {
		t.Errorf("%v", err)
	}
}
