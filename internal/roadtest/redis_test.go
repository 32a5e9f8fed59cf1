package roadtest_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoadOverRedis: tasks, results and events all over one server, through a proxy that can cut connections.
func TestRoadOverRedis(t *testing.T) {
	redis := testserver.RequireRedis(t)
	noLeaks(t)
	roadtest.Run(t, over(redis.URL(), redis.Addr()))
}
