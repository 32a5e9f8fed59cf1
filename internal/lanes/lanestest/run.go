package lanestest

import (
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// Run measures two loads with 1, 4 and 16 producers: one heavy key beside 100 light ones, and ten
// beside 1,000. A light task is late after 1,000 starts. It fails if more than 5 of 100 are late.
// open returns a new Broker that is closed at the end of the test. If full is false the backlogs are
// smaller.
func Run(t *testing.T, open func(t testing.TB) broker.Broker, full bool) {
	backlog := 20_000
	if !full {
		backlog = 4_000
	}
	for _, producers := range []int{1, 4, 16} {
		for name, l := range map[string]load{
			"one heavy key":  {HeavyKeys: 1, HeavyTasks: backlog, LightKeys: 100, LightTasks: backlog / 10_000},
			"ten heavy keys": {HeavyKeys: 10, HeavyTasks: backlog / 10, LightKeys: backlog / 20, LightTasks: 1},
		} {
			t.Run(fmt.Sprintf("%s, %d producers", name, producers), func(t *testing.T) {
				l.Producers, l.LightTasks, l.Prefetch = producers, max(1, l.LightTasks), 32
				q := broker.Queue{Name: testserver.Namespace(), Fair: true}
				r := l.run(testwait.Long(t), t, q, func() broker.Broker { return open(t) })
				late := r.late(1000)
				t.Logf("%d light tasks: %d late, longest wait %d starts", len(r.waits), late, r.longest())
				if late*100 > 5*len(r.waits) {
					t.Errorf("%d of %d light tasks waited for more than 1,000 starts, the longest for %d", late, len(r.waits), r.longest())
				}
			})
		}
	}
}
