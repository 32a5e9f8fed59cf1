package lanestest

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/lanes"
)

// Run measures two loads with 1, 4 and 16 producers: one heavy key beside 100 light ones, and ten
// beside many. It fails if more than 2 of 100 light tasks wait longer than [load.bound]. open
// returns a new Broker that is closed at the end of the test. If full is false the backlog is 4,000
// messages, otherwise 20,000.
func Run(t *testing.T, open func(t testing.TB) broker.Broker, full bool) {
	backlog := 4_000
	if full {
		backlog = 20_000
	}
	for _, producers := range []int{1, 4, 16} {
		for name, l := range map[string]load{
			"one heavy key":  {HeavyKeys: 1, HeavyTasks: backlog, LightKeys: 100, LightTasks: backlog / 4_000},
			"ten heavy keys": {HeavyKeys: 10, HeavyTasks: backlog / 10, LightKeys: backlog / 20, LightTasks: 1},
		} {
			t.Run(fmt.Sprintf("%s, %d producers", name, producers), func(t *testing.T) {
				l.Producers, l.Prefetch = producers, 32
				q := broker.Queue{Name: rand.Text(), Fair: true}
				r := l.run(t.Context(), t, q, func() broker.Broker { return open(t) })
				late := r.late(l.bound())
				t.Logf("%d light tasks: %d above the bound of %d starts, %d above 1,000, the longest wait %d", len(r.waits), late, l.bound(), r.late(1000), r.longest())
				if late*100 > 2*len(r.waits) {
					t.Errorf("%d of %d light tasks waited for more than %d starts, the longest for %d", late, len(r.waits), l.bound(), r.longest())
				}
			})
		}
	}
}

// bound returns the longest wait of a light task, in starts. Each producer puts 4 tasks of each
// heavy key into lane 0, which has 8 of 15 turns. The consumer holds up to Prefetch messages of
// each lane.
func (l load) bound() int { return 2*4*l.Producers*l.HeavyKeys + lanes.Count*l.Prefetch + 15 }
