package redisbroker_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestScanBesideAFullList scans while tasks fail and the dead letters are full, so that letters
// before the scan's position are dropped. The scan continues at its position. If it started again
// each time it would never end.
func TestScanBesideAFullList(t *testing.T) {
	const letters, every = 3000, 100
	srv := testserver.OwnRedis(t, testserver.RedisConfig{})
	b := connect(t, redisbroker.Config{Redis: options(srv), DeadMax: letters})
	put := func(i int) {
		t.Helper()
		if err := b.PutDead(testwait.Long(t), "full", broker.Dead{Message: message(fmt.Sprint(i)), Reason: "why"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range letters {
		put(i)
	}
	before := ranges(t, srv)
	shown := make(map[string]bool, letters)
	if err := b.ScanDead(testwait.Long(t), "full", func(d *broker.Dead) broker.DeadAction {
		if shown[d.Message.ID] {
			t.Errorf("letter %s is shown twice", d.Message.ID)
		}
		if shown[d.Message.ID] = true; len(shown)%every == 0 {
			put(letters + len(shown)/every)
		}
		return broker.DeadKeep
	}); err != nil {
		t.Fatal(err)
	}
	for i := range letters {
		if !shown[fmt.Sprint(i)] {
			t.Errorf("letter %d is not shown", i)
		}
	}
	if n := ranges(t, srv) - before; n > 2*letters/every {
		t.Errorf("the scan of %d letters took %d looks at the list", letters, n)
	}
}

// ranges returns how often the server has read a part of a list.
func ranges(t *testing.T, srv *testserver.Redis) int {
	t.Helper()
	c := redis.NewUniversalClient(options(srv))
	defer func() { _ = c.Close() }()
	info, err := c.Info(testwait.Long(t), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`cmdstat_lrange:calls=(\d+)`).FindStringSubmatch(info)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
