package roadtest_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/roadtest"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoadOverNATS: tasks, results and events all over one server, through a proxy that can cut connections.
func TestRoadOverNATS(t *testing.T) {
	nats := testserver.RequireNATS(t)
	noLeaks(t)
	open := over(nats.URL(), nats.Addr())
	roadtest.Run(t, func(t *testing.T) *roadtest.Harness {
		h := open(t)
		h.LateReady = true
		return h
	})
}
