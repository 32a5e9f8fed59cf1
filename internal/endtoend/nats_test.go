package endtoend_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/internal/endtoend"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// TestRoadOverNATS runs the suite with tasks, results and events all on one NATS server, through a
// proxy that can cut connections.
func TestRoadOverNATS(t *testing.T) {
	nats := testserver.RequireNATS(t)
	noLeaks(t)
	open := over(nats.URL(), nats.Addr())
	endtoend.Run(t, func(t *testing.T) *endtoend.Harness {
		h := open(t)
		h.LateReady = true
		return h
	})
}
