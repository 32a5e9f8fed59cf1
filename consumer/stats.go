package consumer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/utf"
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
	// Reserved is how many tasks wait in this consumer before they start: those that were fetched
	// and wait for a worker, where the broker tells ([broker.Buffer]), and those that a worker has
	// taken and that wait, such as for their rate.
	Reserved int
	// Stuck is how many handlers go on beyond their hard time limit, see [MaxStuck]. They are not
	// Active.
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
	Since   time.Time // its handler runs, or, of a reserved one, a worker has had it; zero: it waits for one
	Attempt int       // 1 for the first
}

// Stats returns what the consumer does now. It may be called at any time, from any goroutine.
func (c *Consumer) Stats() Stats {
	m := c.cfg.Metrics
	s := Stats{
		NodeID: c.cfg.Report.NodeID, Received: m.Received.Count(), Started: m.Started.Count(), Succeeded: m.Succeeded.Count(),
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
	if l != nil {
		for _, q := range l.queues {
			n := len(q.buffered())
			byName[q.name].Reserved += n
			s.Reserved += n
		}
	}
	for _, r := range c.running.All() {
		if r.isActive() {
			byName[r.queue.name].Active++
			s.Active++
		}
	}
	for _, r := range c.reserved.All() {
		byName[r.queue.name].Reserved++
		s.Reserved++
	}
	return s
}

func (q *queue) describe(s *QueueStats) {
	if q == nil { // it is not consumed: the broker allowed no more consumers
		s.Workers, s.Prefetch = 0, 0
		return
	}
	s.Workers, s.Paused = q.team.workers(), q.gate.shut.Load()
	s.Prefetch = q.cfg.prefetch(s.Workers)
}

// Active returns the tasks whose handlers run now, the oldest first. It may be called at any time, from any goroutine.
func (c *Consumer) Active() []TaskInfo {
	return infos(c.running.All(), (*run).isActive, func(r *run) time.Time { return r.request.StartedAt })
}

// Reserved returns the tasks that wait in this consumer before they start, see [QueueStats]: first
// those that a worker has taken, the oldest first, then those that wait for a worker, in their
// order. It may be called at any time, from any goroutine.
func (c *Consumer) Reserved() []TaskInfo {
	ts := infos(c.reserved.All(), nil, func(r *run) time.Time { return r.request.Received })
	l := c.live.Load()
	if l == nil {
		return ts
	}
	for _, q := range l.queues {
		for _, m := range q.buffered() {
			e, _, _, err := q.decode(m)
			if err != nil { // its worker will bury it
				e = &task.Envelope{ID: task.ID(utf.Cut(m.ID, 128))}
			}
			if e.Name == "" {
				e.Name = q.cfg.Task
			}
			ts = append(ts, TaskInfo{ID: e.ID, Name: e.Name, Queue: q.name, Attempt: e.Retries + 1})
		}
	}
	return ts
}

// buffered returns the messages that the queue's subscription holds for its workers; nil where the
// broker does not tell.
func (q *queue) buffered() []*broker.Message {
	if b, ok := capability.As[broker.Buffer](q.sub); ok {
		return b.Buffered()
	}
	return nil
}

// waiting returns how many tasks wait in the consumer before they start.
func (c *Consumer) waiting() int {
	n := c.reserved.Len()
	if l := c.live.Load(); l != nil {
		for _, q := range l.queues {
			n += len(q.buffered())
		}
	}
	return n
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
