package redisresults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
)

// After a failover the store and its streams continue with the new master.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedisSentinel(t, testserver.RedisConfig{})
	o := &redis.UniversalOptions{
		Addrs: []string{srv.Sentinel.Addr()}, MasterName: srv.MasterName(),
		Username: srv.Primary.User(), Password: srv.Primary.Password(),
		SentinelUsername: srv.Sentinel.User(), SentinelPassword: srv.Sentinel.Password(),
	}
	s := open(t, o, "failover")
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
	// a requested failover, and one after a crash
	for i, fault := range []func(){func() {}, srv.Primary.Kill} {
		fault()
		if err := srv.Failover(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
		r := done("node", 10+i)
		ctx := testwait.Long(t)
		for ; ; pause(t) { // a demoted master accepts records for a moment, and loses them
			save(t, s, r)
			_, err := s.Load(ctx, r.ID)
			if err == nil {
				break
			}
			if !errors.Is(err, resultstore.ErrNotFound) || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		wantRecord(t, s, r)
		for next := 100 * (i + 1); ; next++ { // the stream misses records until it is connected again
			save(t, s, done("node", next))
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			got, err := n.Receive(short)
			cancel()
			if err == nil && got.ID == done("node", next).ID {
				break
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Fatalf("the stream does not go on after a failover: %v", err)
			}
		}
		if i == 0 { // the old master must be a replica before the next failover
			awaitReplica(t, srv)
		}
	}
}

// awaitReplica waits until both servers replicate again, with the first one as the master.
func awaitReplica(t testing.TB, srv *testserver.RedisSentinel) {
	t.Helper()
	for ctx := testwait.Long(t); ; pause(t) {
		if err := srv.Failover(ctx); err == nil {
			if addr, err := srv.PrimaryAddr(ctx); err == nil && addr == srv.Primary.Addr() {
				return
			}
		}
		if ctx.Err() != nil {
			t.Fatal("the servers are no pair again")
		}
	}
}
