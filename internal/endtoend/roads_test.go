package endtoend_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoads runs the suite with each kind of server. All kinds run at the same time, because the
// cases mostly wait. The road over Redis has all cases, as the one in memory of package consumer.
//
// Promises: S6.
func TestRoads(t *testing.T) {
	rabbit, redis, nats := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t)
	hworker := testserver.OwnRedis(t, testserver.RedisConfig{})
	noLeaks(t)
	overNATS := over(nats.URL(), nats.Addr())
	for name, open := range map[string]endtoend.Open{
		"RabbitMQ": overRabbit(rabbit),
		"Redis":    over(redis.URL(), redis.Addr()),
		"NATS": func(t *testing.T) *endtoend.Harness {
			h := overNATS(t)
			h.LateReady = true
			return h
		},
		"hworker": overHworker(hworker),
	} {
		if name != "Redis" {
			open = briefly(open)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endtoend.Run(t, open)
		})
	}
}
