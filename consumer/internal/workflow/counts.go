package workflow

import (
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Counts limits how often the counts of groups are sent: at most once a second for each group, and
// always those of a complete group. The zero value is ready for use. Safe for concurrent use.
type Counts struct {
	mu   sync.Mutex
	sent map[task.ID]time.Time
}

// maxCounted limits the groups whose times are kept. Beyond it all times are forgotten, so that
// some counts are sent earlier.
const maxCounted = 10_000

// due reports whether the counts g of a group may be sent now: the group is complete, or none were
// sent for it within a second. If so, it stores the time of this call. It takes c.mu.
func (c *Counts) due(group task.ID, g *resultstore.Gathered) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.Size > 0 && g.Done == g.Size {
		delete(c.sent, group)
		return true
	}
	now := time.Now()
	if last, ok := c.sent[group]; ok && now.Sub(last) < time.Second {
		return false
	}
	if c.sent == nil || len(c.sent) >= maxCounted {
		c.sent = make(map[task.ID]time.Time)
	}
	c.sent[group] = now
	return true
}
