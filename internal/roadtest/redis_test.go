package roadtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoadOverRedis: tasks, results and events all over one server, through a proxy that can cut connections.
func TestRoadOverRedis(t *testing.T) {
	redis := testserver.RequireRedis(t)
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	roadtest.Run(t, over(redis.URL(), redis.Addr()))
}
