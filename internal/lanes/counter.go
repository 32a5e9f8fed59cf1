package lanes

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

const (
	// halfLife is the time in which the number of recent submissions of a key halves.
	halfLife = 30 * time.Second
	// maxKeys limits the keys that a Counter remembers, about 30 MB with long keys. The key without
	// submissions for the longest time is forgotten first.
	maxKeys = 100_000
)

// limits are the numbers of recent submissions from which a key leaves the lanes 0, 1 and 2. They
// are a little below 4, 16 and 64, because a submission of a moment ago counts a little less than
// 1.
var limits = [Count - 1]float64{3.5, 15.5, 63.5}

// Counter counts the recent submissions of each key by this process, and chooses their lanes. The
// zero value is empty. Safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts map[counted]*list.Element
	order  list.List // of *count, the latest submission first
}

// counted names a key in a priority level of a queue.
type counted struct{ level, key string }

// count is the number of recent submissions of a key at a time.
type count struct {
	counted
	n  float64
	at time.Time
	// id is the id of the last submission. A repeated attempt to submit it counts once.
	id string
}

// Choose returns the lane of m, a message for a priority level of a fair queue. level is any name
// of the level.
//
//   - A message with the [Header] keeps its lane.
//   - Another message with a Generation above 0 was in lane 0 before, and stays there.
//   - Any other message is a submission. It counts 1 divided by its Weight.
//
// The lane of a submission is 0, 1 or 2 if fewer than 4, 16 or 64 were recent, otherwise 3. After
// each 30 seconds a submission counts half as much.
func (c *Counter) Choose(level string, m *broker.Message) int {
	if lane := Of(m); lane > 0 || m.Generation > 0 {
		return lane
	}
	recent := c.add(counted{level, m.Key}, m.ID, 1/float64(max(m.Weight, 1)))
	lane := 0
	for lane < len(limits) && recent >= limits[lane] {
		lane++
	}
	return lane
}

// add adds n to the number of recent submissions of a key, for the message id, and returns the
// number before. If id is the last one of the key, it adds nothing. It takes c.mu.
func (c *Counter) add(k counted, id string, n float64) (before float64) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.counts[k]; ok {
		have := e.Value.(*count) //nolint:forcetypeassert // nothing else is in it
		before = have.n * math.Exp2(-float64(now.Sub(have.at))/float64(halfLife))
		if id != "" && id == have.id {
			return max(before-n, 0)
		}
		have.n, have.at, have.id = before+n, now, id
		c.order.MoveToFront(e)
		return before
	}
	if c.counts == nil {
		c.counts = make(map[counted]*list.Element)
	}
	c.counts[k] = c.order.PushFront(&count{k, n, now, id})
	if len(c.counts) > maxKeys {
		oldest := c.order.Remove(c.order.Back()).(*count) //nolint:forcetypeassert // nothing else is in it
		delete(c.counts, oldest.counted)
	}
	return 0
}
