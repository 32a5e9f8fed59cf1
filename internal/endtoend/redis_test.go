package endtoend_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoadOverRedis runs the suite with tasks, results and events all on one Redis server, through
// a proxy that can cut connections.
func TestRoadOverRedis(t *testing.T) {
	redis := testserver.RequireRedis(t)
	noLeaks(t)
	endtoend.Run(t, over(redis.URL(), redis.Addr()))
}
