package redisschedule_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/schedule/redisschedule"
	"github.com/swarmiji/swarmiji/schedule/scheduletest"
)

func TestMain(m *testing.M) {
	if scheduletest.Child(child) {
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

// child opens a store in the processes of TestKilled.
func child(url, name string) (scheduletest.Store, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redisschedule.New(redisschedule.Config{
		Redis: &redis.UniversalOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, MaxRetryBackoff: 500 * time.Millisecond},
		Name:  name, Logger: slog.New(slog.DiscardHandler),
	})
}

func TestKilled(t *testing.T) {
	scheduletest.Killed(t, testserver.RequireRedis(t).URL(), testserver.Namespace(), child)
}

func options(srv *testserver.Redis, addr string) *redis.UniversalOptions {
	return &redis.UniversalOptions{Addrs: []string{addr}, Username: srv.User(), Password: srv.Password()}
}

func open(t testing.TB, c redisschedule.Config) *redisschedule.Store {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	o := *c.Redis
	o.MaxRetryBackoff = 500 * time.Millisecond
	c.Redis = &o
	s, err := redisschedule.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// opened opens a store and closes it at the end of the test.
func opened(t testing.TB, c redisschedule.Config) *redisschedule.Store {
	t.Helper()
	s := open(t, c)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func promises() scheduletest.Promises {
	return scheduletest.Promises{List: true, Pause: true, Repair: true, Change: true, Durable: true}
}

func harness(t testing.TB) *scheduletest.Harness {
	srv := testserver.RequireRedis(t)
	line := testserver.NewRelay(t, srv.Addr())
	name := testserver.Namespace()
	o := options(srv, line.Addr())
	return &scheduletest.Harness{
		Open:  func(t testing.TB) scheduletest.Store { return open(t, redisschedule.Config{Redis: o, Name: name}) },
		Sever: func(testing.TB, scheduletest.Store) { line.Sever() },
		Restart: func(t testing.TB) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := srv.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Stray: func(t testing.TB, id string) {
			if n, err := srv.Do(context.Background(), "ZREM", name+":next", `{"id":"`+id+`"}`); err != nil || n != int64(1) {
				t.Fatal(n, err)
			}
		},
		Secret:   o.Password,
		Promises: promises(),
		Report:   "../../docs/capabilities/schedules-redis.json",
	}
}

func TestStore(t *testing.T) {
	t.Parallel() // at the same time as the test with its own servers
	scheduletest.Run(t, harness)
}
