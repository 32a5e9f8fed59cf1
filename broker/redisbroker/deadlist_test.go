package redisbroker_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// TestListFetchesLittle shows that a list of a few dead letters fetches few from the server.
func TestListFetchesLittle(t *testing.T) {
	t.Parallel()
	ctx := testwait.Long(t)
	srv := testserver.OwnRedis(t, testserver.RedisConfig{}) // its traffic is counted
	b := connect(t, redisbroker.Config{Redis: options(srv)})
	q := declared(t, b, "q")
	body := []byte(strings.Repeat("b", 100<<10))
	for i := range 60 {
		must(t, b.PutDead(ctx, q, broker.Dead{Message: &broker.Message{ID: fmt.Sprint("m", i), Body: body}, Reason: "why"}))
	}
	sent := func() int {
		info := regexp.MustCompile(`total_net_output_bytes:(\d+)`).FindStringSubmatch(fmt.Sprint(do(t, srv, "INFO", "stats")))
		n, err := strconv.Atoi(info[1])
		must(t, err)
		return n
	}
	for _, n := range []int{1, 3, 10} {
		before := sent()
		ds, err := broker.ListDead(ctx, b, q, n)
		if err != nil || len(ds) != n {
			t.Fatalf("%d letters, %v", len(ds), err)
		}
		if got := (sent() - before) / len(body); got > 4+2*n {
			t.Errorf("the server has sent about %d letters for %d", got, n)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
