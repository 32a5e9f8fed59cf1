package consumer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Stats is what a consumer does at a moment.
type Stats struct {
	NodeID  string
	Running bool         // it consumes
	Queues  []QueueStats // by name
	// Active, Reserved and Stuck are sums over the queues.
	Active, Reserved, Stuck int
	// The totals count since Config.Metrics was made; consumers that share one share them.
	Received, Started, Succeeded, Failed, Retried int64
}

// QueueStats is what a consumer does with one queue. Before Run, and after its end, Workers and Prefetch are what was configured.
type QueueStats struct {
	Name    string
	Workers int // there are to be; after Scale more may still be ending their tasks
	// Active is how many handlers run, also in quarantine and in the side queue of an older version.
	Active int
	// Reserved is how many tasks a worker has taken that have to wait before they start, such as for their rate.
	Reserved int
	// Stuck is how many handlers go on beyond their hard time limit, see [MaxStuck]. They are not Active.
	Stuck int
	// Prefetch is how many unsettled tasks may be held. Negative: no limit.
	Prefetch int
	Paused   bool
}

// TaskInfo is a task that a consumer has. Its arguments are not told: they may hold secrets.
type TaskInfo struct {
	ID      task.ID
	Name    string
	Queue   string
	Since   time.Time // its handler runs, or, of a reserved one, a worker has had it
	Attempt int       // 1 for the first
}

// Stats returns what the consumer does now. It may be called at any time, from any goroutine.
func (c *Consumer) Stats() Stats {
	m := c.cfg.Metrics
	s := Stats{
		NodeID: c.cfg.NodeID, Received: m.Received.Count(), Started: m.Started.Count(), Succeeded: m.Succeeded.Count(),
		Failed: m.Failed.Count(), Retried: m.Retried.Count(),
	}
	l := c.live.Load()
	s.Running = l != nil
	byName := make(map[string]*QueueStats, len(c.cfg.Queues))
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Queues)) {
		cfg := c.cfg.Queues[name]
		s.Queues = append(s.Queues, QueueStats{Name: name, Workers: cfg.Workers, Prefetch: cfg.prefetch(cfg.Workers)})
	}
	for i := range s.Queues {
		byName[s.Queues[i].Name] = &s.Queues[i]
		s.Queues[i].Stuck = c.stuck.of(s.Queues[i].Name)
		s.Stuck += s.Queues[i].Stuck
		if l != nil {
			l.find(s.Queues[i].Name).describe(&s.Queues[i])
		}
	}
	for _, r := range c.running.all() {
		if r.isActive() {
			byName[r.queue.name].Active++
			s.Active++
		}
	}
	for _, r := range c.reserved.all() {
		byName[r.queue.name].Reserved++
		s.Reserved++
	}
	return s
}

func (q *queue) describe(s *QueueStats) {
	s.Workers, s.Paused = q.team.workers(), q.gate.shut.Load()
	s.Prefetch = q.cfg.prefetch(s.Workers)
}

// Active returns the tasks whose handlers run now, the oldest first. It may be called at any time, from any goroutine.
func (c *Consumer) Active() []TaskInfo {
	return infos(c.running.all(), (*run).isActive, func(r *run) time.Time { return r.request.StartedAt })
}

// Reserved returns the tasks that a worker has taken and that have to wait before they start, the oldest first. It may be called at
// any time, from any goroutine.
func (c *Consumer) Reserved() []TaskInfo {
	return infos(c.reserved.all(), nil, func(r *run) time.Time { return r.request.Received })
}

// isActive reports whether the handler runs. Only then is StartedAt safe to read from another goroutine.
func (r *run) isActive() bool { return r.started.Load() && !r.over.Load() }

func infos(runs []*run, which func(*run) bool, since func(*run) time.Time) []TaskInfo {
	var ts []TaskInfo
	for _, r := range runs {
		if which == nil || which(r) {
			ts = append(ts, TaskInfo{
				ID: r.request.ID, Name: r.request.Name, Queue: r.queue.name, Since: since(r), Attempt: r.request.Retries + 1,
			})
		}
	}
	slices.SortFunc(ts, func(a, b TaskInfo) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(string(a.ID), string(b.ID)))
	})
	return ts
}
