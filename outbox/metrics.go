package outbox

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	// lookEvery is the interval at which a relay with Metrics counts the messages of the outbox.
	lookEvery = 15 * time.Second
	// lookFirst is the time until the first count: the relay has registered itself by then.
	lookFirst = time.Second
	// lookPart limits the time of counting to one part in lookPart. Counting many messages takes
	// seconds.
	lookPart = 20
)

// look counts the messages of the outbox at intervals and sets the gauges of c.Metrics to the
// numbers, until ctx ends. It does nothing if the Store is not an Inspector. While the numbers are
// not known, and after look, the gauges are negative.
func (c *Config) look(ctx context.Context) {
	store, ok := capability.As[Inspector](c.Store)
	if !ok {
		return
	}
	c.show(unknown)
	defer c.show(unknown)
	for wait := lookFirst; wake.Sleep(ctx, wait); {
		begun := time.Now()
		looking, cancel := context.WithTimeout(ctx, lookEvery)
		st, err := store.Stats(looking)
		cancel()
		if err != nil {
			st = unknown
		}
		c.show(st)
		wait = max(lookEvery, lookPart*time.Since(begun))
	}
}

// unknown is shown while the outbox cannot be read, so that no outdated number is.
var unknown = Stats{Waiting: -1, Oldest: -time.Second, Dead: -1, Relays: -1}

// show sets the gauges of c.Metrics to the numbers of st.
func (c *Config) show(st Stats) {
	m := c.Metrics
	m.OutboxWaiting.Update(int64(st.Waiting))
	m.OutboxOldest.Update(int64(st.Oldest / time.Second))
	m.OutboxDead.Update(int64(st.Dead))
	m.OutboxRelays.Update(int64(st.Relays))
}
