package middleware

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// MaxTaskNames limits the task names with metrics of their own. The runs of further names are
// recorded under [OtherTasks].
const MaxTaskNames = 100

// OtherTasks stands for the task names beyond [MaxTaskNames].
const OtherTasks = "other"

// Names of the metrics of each queue and of each task. A dot and the name follow.
const (
	QueueWait    = Prefix + "queue.wait.us"
	QueueRuntime = Prefix + "queue.runtime.us"
	TaskWait     = Prefix + "task.wait.us"
	TaskRuntime  = Prefix + "task.runtime.us"
	// QueueOldest is the age of the oldest waiting task, if the broker knows it. Otherwise there is
	// only QueueLastWait: the wait of the task that was started last.
	QueueOldest   = Prefix + "queue.oldest.us"
	QueueLastWait = Prefix + "queue.last.wait.us"
)

// labelled describes the metrics that OnLabel receives.
var labelled = []Description{
	{QueueWait, Spread, microseconds, "Time that tasks of a queue waited for their first start.", "queue"},
	{QueueRuntime, Spread, microseconds, "Run time of handlers of a queue.", "queue"},
	{TaskWait, Spread, microseconds, "Time that tasks of a name waited for their first start.", "task"},
	{TaskRuntime, Spread, microseconds, "Run time of handlers of a task's name.", "task"},
	{QueueOldest, Level, microseconds, "Age of the oldest task that waits in a consumed queue, at the last check.", "queue"},
	{QueueLastWait, Level, microseconds, "Wait of the task of a queue that was started last.", "queue"},
}

const microseconds = "microseconds"

// times holds the metrics of queues and tasks. The zero value is empty. The maps are replaced and
// never changed, because every run reads them.
type times struct {
	queues atomic.Pointer[map[string]*queueTimes]
	tasks  atomic.Pointer[map[string]*Times]
	mu     sync.Mutex // held while a map is replaced, and while OnLabel is called
}

// Times holds the histograms of a queue or of a task's name, in microseconds. The zero value is
// empty. Safe for concurrent use. It must not be copied.
type Times struct {
	// Wait is the time from the submission to the start of the handler, or from the end of the task's
	// delay. It compares the clocks of the producer and the consumer. A negative time counts as 0. An
	// attempt that follows another one without a delay is left out, because its begin is not known.
	Wait Histogram
	Run  Histogram // run time of the handler
}

// queueTimes holds all metrics of a queue.
type queueTimes struct {
	Times
	lastWait, oldest Gauge
	ages             atomic.Bool // OnLabel was told of oldest
}

// ObserveRun records the run of a handler that has ended: in Runtime, and in the [Times] of its
// queue and of its task's name. Safe for concurrent use. Consumers call it.
//
// The queues come from the configuration of consumers, and the names are those of registered
// handlers. They are still bounded, see [MaxTaskNames].
func (m *Metrics) ObserveRun(r *task.Request, ended time.Time) {
	run := ended.Sub(r.StartedAt).Microseconds()
	m.Runtime.Update(run)
	queue, name := m.queueTimes(r.Queue), m.OfTask(r.Name)
	queue.Run.Update(run)
	name.Run.Update(run)
	if begin, known := waitsSince(r); known {
		wait := max(0, r.StartedAt.Sub(begin).Microseconds())
		queue.Wait.Update(wait)
		name.Wait.Update(wait)
		queue.lastWait.Update(wait)
	}
}

// waitsSince returns the time since when the task of this attempt could have run: its submission,
// or the end of its delay. It returns false for a redelivery, and for a later attempt without a
// delay: the request does not show when that began to wait.
func waitsSince(r *task.Request) (time.Time, bool) {
	begin := r.SentAt
	due := r.Effective.NotBefore.Or(time.Time{})
	if due.After(begin) {
		begin = due
	}
	first := r.Deliveries <= 1 && (r.Generation == 0 || !due.IsZero())
	return begin, first && !begin.IsZero()
}

// OfQueue returns the histograms of a queue. It adds them if they do not exist. Safe for concurrent
// use.
func (m *Metrics) OfQueue(queue string) *Times { return &m.queueTimes(queue).Times }

// OfTask returns the histograms of a task's name. It adds them if they do not exist. Above
// [MaxTaskNames] names it returns those of [OtherTasks]. Safe for concurrent use.
func (m *Metrics) OfTask(name string) *Times {
	if t := lookup(&m.times.tasks, name); t != nil {
		return t
	}
	m.times.mu.Lock()
	defer m.times.mu.Unlock()
	all := m.times.tasks.Load()
	if all != nil && len(*all) >= MaxTaskNames && (*all)[name] == nil {
		name = OtherTasks
	}
	t, added := add(&m.times.tasks, name)
	if added {
		m.tell(TaskWait, name, &t.Wait)
		m.tell(TaskRuntime, name, &t.Run)
	}
	return t
}

// queueTimes returns the metrics of a queue. It adds them if they do not exist, and calls OnLabel
// for them. It may take m.times.mu.
func (m *Metrics) queueTimes(queue string) *queueTimes {
	if t := lookup(&m.times.queues, queue); t != nil {
		return t
	}
	m.times.mu.Lock()
	defer m.times.mu.Unlock()
	t, added := add(&m.times.queues, queue)
	if added {
		m.tell(QueueWait, queue, &t.Wait)
		m.tell(QueueRuntime, queue, &t.Run)
		m.tell(QueueLastWait, queue, &t.lastWait)
	}
	return t
}

// lookup returns the entry of a map with this key, or nil if it does not exist. It takes no lock.
func lookup[T any](p *atomic.Pointer[map[string]*T], key string) *T {
	if all := p.Load(); all != nil {
		return (*all)[key]
	}
	return nil
}

// add returns the entry of a map with this key. If it does not exist, add replaces the map by a
// copy with a zero entry, and added is true. Call it with the mutex of the maps held.
func add[T any](p *atomic.Pointer[map[string]*T], key string) (t *T, added bool) {
	if t := lookup(p, key); t != nil {
		return t, false
	}
	all := make(map[string]*T)
	if old := p.Load(); old != nil {
		maps.Copy(all, *old)
	}
	t = new(T)
	all[key] = t
	p.Store(&all)
	return t, true
}

// tell calls OnLabel, if it is set, for a metric: name is its name in labelled, and value the value
// of its label. Call it with m.times.mu held.
func (m *Metrics) tell(name, value string, metric any) {
	if m.OnLabel == nil {
		return
	}
	i := slices.IndexFunc(labelled, func(d Description) bool { return d.Name == name })
	m.OnLabel(labelled[i], value, metric)
}

// SetOldest records since when the oldest of the ready tasks of a queue waits. A zero since means
// that no task waits, or that the broker does not know it: the age becomes 0 if ready is 0, and
// else stays as it was. OnLabel gets the age with the first known one. Safe for concurrent use. A
// consumer with Metrics calls it, as it calls [Metrics.SetQueue].
func (m *Metrics) SetOldest(queue string, ready int, since time.Time) {
	t := m.queueTimes(queue)
	switch {
	case !since.IsZero():
		t.oldest.Update(max(0, time.Since(since).Microseconds()))
		if t.ages.CompareAndSwap(false, true) {
			m.times.mu.Lock()
			defer m.times.mu.Unlock()
			m.tell(QueueOldest, queue, &t.oldest)
		}
	case ready == 0:
		t.oldest.Update(0)
	}
}
