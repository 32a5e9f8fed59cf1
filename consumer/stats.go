package consumer

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Stats holds the state and the counts of a consumer at one moment.
type Stats struct {
	NodeID  string
	Running bool         // the consumer consumes
	Queues  []QueueStats // sorted by name
	// Active, Reserved and Stuck are sums over the queues.
	Active, Reserved, Stuck int
	// These counts begin with the creation of Config.Metrics. Consumers with the same Metrics share
	// them.
	Received, Started, Succeeded, Failed, Retried int64
}

// QueueStats holds the state of one queue of a consumer. Before and after Run, Workers and Prefetch
// are the configured values.
type QueueStats struct {
	Name    string
	Workers int // configured number; after Scale, surplus workers may still run their tasks
	// Active is the number of running handlers, including those in quarantine and of the side queue of
	// an older version.
	Active int
	// Reserved is the number of tasks that this consumer holds and has not started. It counts fetched
	// tasks that wait for a worker, if the broker reports them ([broker.Buffer]). It also counts tasks
	// that wait after a worker has received them, for example for their rate limit.
	Reserved int
	// Stuck is the number of handlers that ignore their hard time limit, see [MaxStuck]. Active
	// does not count them.
	Stuck int
	// Prefetch is the number of unsettled tasks that the consumer may hold now. Negative: no limit.
	Prefetch int
	Paused   bool
}

// Stats returns the current state and counts of the consumer, see [Stats]. It has an entry for each
// consumed queue; before and after Run for each configured one. Tasks of a side queue of an older
// version count for their queue. Safe for concurrent use.
func (c *Consumer) Stats() Stats {
	m := c.cfg.Metrics
	s := Stats{
		NodeID: c.cfg.Report.NodeID, Received: m.Received.Count(), Started: m.Started.Count(), Succeeded: m.Succeeded.Count(),
		Failed: m.Failed.Count(), Retried: m.Retried.Count(),
	}
	l := c.live.Load()
	s.Running = l != nil && !c.stopping.Load()
	names := c.queues.Names()
	byName := make(map[string]*QueueStats, len(names))
	for _, name := range names {
		cfg := c.queues.Get(name)
		s.Queues = append(s.Queues, QueueStats{Name: name, Workers: cfg.Workers, Prefetch: cfg.prefetch(cfg.Workers)})
	}
	of := func(name string) *QueueStats {
		if q := byName[name]; q != nil {
			return q
		}
		return new(QueueStats) // of a queue that was removed, and whose last tasks run
	}
	for i := range s.Queues {
		byName[s.Queues[i].Name] = &s.Queues[i]
		s.Queues[i].Stuck = c.stuck.Of(s.Queues[i].Name)
		s.Stuck += s.Queues[i].Stuck
		if l != nil {
			l.find(s.Queues[i].Name).describe(&s.Queues[i])
		}
	}
	if l != nil {
		for _, q := range l.queues {
			n := len(q.in.Buffered())
			of(q.name).Reserved += n
			s.Reserved += n
		}
	}
	for _, r := range c.running.All() {
		if r.isActive() {
			of(r.queue.name).Active++
			s.Active++
		}
	}
	for _, r := range c.reserved.All() {
		of(r.queue.name).Reserved++
		s.Reserved++
	}
	return s
}

// describe sets the number of workers, the prefetch and the pause in s. A nil q means that the
// broker allowed no consumer for the queue: describe then sets the two numbers to 0.
func (q *queue) describe(s *QueueStats) {
	if q == nil { // not consumed: the broker allowed no more consumers
		s.Workers, s.Prefetch = 0, 0
		return
	}
	s.Workers, s.Prefetch, s.Paused = q.workers.Count(), q.in.Prefetch(), q.in.Paused()
}

// Active returns the tasks whose handlers run now, the oldest first. Since is the start of the
// handler. Safe for concurrent use.
func (c *Consumer) Active() []control.Task {
	active := slices.DeleteFunc(c.running.All(), func(r *run) bool { return !r.isActive() })
	return infos(active, func(r *run) time.Time { return r.request.StartedAt })
}

// Reserved returns the tasks that this consumer holds and has not started, see [QueueStats]. Tasks
// that a worker has received come first, the oldest first, then those that wait for a worker, in
// their order and without Since. A message that cannot be decoded is listed with its message id.
// Safe for concurrent use.
func (c *Consumer) Reserved() []control.Task {
	ts := infos(c.reserved.All(), func(r *run) time.Time { return r.request.Received })
	l := c.live.Load()
	if l == nil {
		return ts
	}
	for _, q := range l.queues {
		for _, m := range q.in.Buffered() {
			e, _, _, err := q.decode(m)
			if err != nil { // its worker will dead-letter it
				e = &task.Envelope{ID: task.ID(utf.Cut(m.ID, 128))}
			}
			if e.Name == "" {
				e.Name = q.cfg.Task
			}
			ts = append(ts, control.Task{ID: e.ID, Name: e.Name, Queue: q.name, Attempt: e.Retries + 1})
		}
	}
	return ts
}

// waiting returns the number of tasks that the consumer holds and has not started, with the fetched
// ones that the broker reports.
func (c *Consumer) waiting() int {
	n := c.reserved.Len()
	if l := c.live.Load(); l != nil {
		for _, q := range l.queues {
			n += len(q.in.Buffered())
		}
	}
	return n
}

// isActive reports whether the handler runs. Only then may another goroutine read StartedAt.
func (r *run) isActive() bool { return r.started.Load() && !r.returned.Load() }

// infos returns the descriptions of the runs, sorted by the time that since returns and then by id.
// It changes the slice runs.
func infos(runs []*run, since func(*run) time.Time) []control.Task {
	slices.SortFunc(runs, func(a, b *run) int {
		return cmp.Or(since(a).Compare(since(b)), strings.Compare(string(a.request.ID), string(b.request.ID)))
	})
	var ts []control.Task
	for _, r := range runs {
		ts = append(ts, control.Task{
			ID: r.request.ID, Name: r.request.Name, Queue: r.queue.name, Since: since(r), Attempt: r.request.Retries + 1,
		})
	}
	return ts
}
