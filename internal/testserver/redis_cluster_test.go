package testserver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestRedisReplicaIsPromoted(t *testing.T) {
	p := testserver.OwnRedisReplica(t, testserver.RedisConfig{})
	ctx := deadline(t, time.Minute)
	primary, replica := dialRedis(t, p.Primary.URL()), dialRedis(t, p.Replica.URL())
	mustSet(t, primary, "k", "old")
	// WAIT applies to the writes of its own connection.
	one := primary.Conn()
	defer one.Close()
	mustSet(t, one, "k", "v")
	if n, err := one.Wait(ctx, 1, 10*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("WAIT = %d, %v", n, err)
	}
	wantValue(t, replica, "k", "v")
	mustSet(t, primary, "synced", "v")
	if err := p.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	wantValue(t, replica, "synced", "v")
	if err := p.Cut(ctx); err != nil {
		t.Fatal(err)
	}
	mustSet(t, primary, "after", "v")
	if err := replica.Set(ctx, "k", "x", 0).Err(); err == nil {
		t.Fatal("a replica took a write")
	}
	p.Primary.Kill()
	if err := p.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	wantValue(t, replica, "k", "v")
	if err := replica.Get(ctx, "after").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET of what was stored after the cut: %v, want nothing", err)
	}
	mustSet(t, replica, "k", "new")
	if err := p.Replica.Restart(ctx); err != nil { // it stays a primary
		t.Fatal(err)
	}
	mustSet(t, dialRedis(t, p.Replica.URL()), "k", "newer")
	if err := p.Primary.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	wantValue(t, dialRedis(t, p.Primary.URL()), "k", "v")
	if err := p.Demote(ctx); err != nil {
		t.Fatal(err)
	}
	wantValue(t, dialRedis(t, p.Primary.URL()), "k", "newer")
}

// The sentinel promotes the replica on request and when the primary dies, and tells its clients the
// new address.
func TestRedisSentinel(t *testing.T) {
	for name, down := range map[string]func(*testserver.RedisSentinel){
		"on request":   func(*testserver.RedisSentinel) {},
		"primary dies": func(s *testserver.RedisSentinel) { s.Primary.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			s := testserver.OwnRedisSentinel(t, testserver.RedisConfig{})
			ctx := deadline(t, time.Minute)
			c := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: s.MasterName(), SentinelAddrs: []string{s.Sentinel.Addr()},
				SentinelUsername: s.Sentinel.User(), SentinelPassword: s.Sentinel.Password(),
				Username: s.Primary.User(), Password: s.Primary.Password(),
			})
			defer c.Close()
			mustSet(t, c, "k", "v")
			down(s)
			if err := s.Failover(ctx); err != nil {
				t.Fatal(err)
			}
			if now, err := s.PrimaryAddr(ctx); err != nil || now != s.Replica.Addr() {
				t.Fatalf("the primary is %s, %v; want %s", now, err, s.Replica.Addr())
			}
			replica := dialRedis(t, s.Replica.URL())
			testwait.UntilNil(t, "after the failover", func() error {
				err := c.Set(ctx, "k", "v2", 0).Err() // an old primary that still runs may accept the write
				if err == nil && replica.Get(ctx, "k").Val() != "v2" {
					err = errors.New("the new primary does not have it")
				}
				return err
			})
		})
	}
}

// Three nodes form a cluster. It loses no data when one node is killed, and it works again after
// that node's restart.
func TestRedisCluster(t *testing.T) {
	c := testserver.OwnRedisCluster(t, testserver.RedisConfig{})
	ctx := deadline(t, time.Minute)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: c.User(), Password: c.Password()})
	defer client.Close()
	owners := make(map[int]string)
	for len(owners) < len(c.Nodes) {
		key := testserver.Namespace()
		mustSet(t, client, key, key)
		owner, err := c.Owner(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		wantValue(t, dialRedis(t, c.URLs()[owner]), key, key) // without a redirect to another node
		owners[owner] = key
	}
	c.KillNode(1)
	if err := dialRedis(t, c.URLs()[1]).Ping(ctx).Err(); err == nil {
		t.Error("a killed node answers")
	}
	if err := c.RestartNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, key := range owners {
		wantValue(t, client, key, key)
	}
}
