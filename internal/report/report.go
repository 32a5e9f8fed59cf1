// Package report is how producers and consumers tell of tasks and of themselves: it hands their events to a bus without ever
// waiting for it, and sends the events about the node, so that both sides behave alike.
package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
)

// DefaultEvery is the default of events.Report.HeartbeatEvery.
const DefaultEvery = 2 * time.Second

// MinEvery is the shortest gap between heartbeats that Check lets through.
const MinEvery = 10 * time.Millisecond

// Config of [New].
type Config struct {
	Report events.Report
	Bus    events.EventBus // nil: New returns nil
	Role   string
	// Counts gives those of a heartbeat. Nil: all are 0.
	Counts func() Counts
	// Lost is told how many events were not handed over. Nil: nobody is.
	Lost func(n int64)
	// BusLost is told with each heartbeat, and at the end, how many events the bus has dropped since it was opened, where it
	// counts. Nil: nobody is.
	BusLost func(total uint64)
	Logger  *slog.Logger // must not be nil
	// Describe makes a preview where Report.Preview does not.
	Describe func(contentType string, data []byte, show bool) string
}

// Counts are what a heartbeat counts, see [events.Worker].
type Counts struct {
	Active, Reserved, Stuck int
	Processed               int64
}

// CheckEvery refuses a time between heartbeats that would be a burden for all.
func CheckEvery(d time.Duration) error {
	if d > 0 && d < MinEvery {
		return fmt.Errorf("config: HeartbeatEvery is %v, at least %v", d, MinEvery)
	}
	return nil
}

// Reporter sends the events of one node. Make one with [New]. A nil Reporter sends nothing; all methods may be called on it,
// and from any goroutine.
type Reporter struct {
	cfg    Config
	prompt events.PromptPublisher // the bus, if it vouches for itself
	queue  *queue                 // else
	self   events.Worker

	mu      sync.Mutex
	begun   atomic.Bool // written under mu
	stopped bool
	stop    chan struct{}
	beats   chan struct{} // closed when the goroutine of the heartbeats has returned
	warned  atomic.Bool
}

// New makes a Reporter. It does no I/O and starts nothing.
func New(c Config) *Reporter {
	if c.Bus == nil {
		return nil
	}
	if c.Report.HeartbeatEvery == 0 {
		c.Report.HeartbeatEvery = DefaultEvery
	}
	if c.Lost == nil {
		c.Lost = func(int64) {}
	}
	r := &Reporter{cfg: c, stop: make(chan struct{}), beats: make(chan struct{})}
	if p, ok := capability.As[events.PromptPublisher](c.Bus); ok {
		r.prompt = p
	} else {
		r.queue = newQueue(c.Bus, c.Lost, r.warn)
	}
	if c.Report.HeartbeatEvery > 0 {
		r.self = identity(c.Role, c.Report.HeartbeatEvery)
	}
	return r
}

// Publish hands an event of this node to the bus, as of now unless it has a time. It never waits and never fails; what is lost
// is counted.
func (r *Reporter) Publish(e *events.Event) {
	if r == nil {
		return
	}
	e.NodeID = r.cfg.Report.NodeID
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	r.Send(e)
}

// Send hands an event to the bus as it is: one about another node. It never waits and never fails; what is lost is counted.
func (r *Reporter) Send(e *events.Event) {
	if r.queue != nil {
		r.queue.add(e)
		return
	}
	if err := r.prompt.PublishNow(*e); err != nil {
		r.cfg.Lost(1)
	}
}

// Start sends worker-online, and heartbeats from then on until Stop. Only the first call counts, and none after Stop.
func (r *Reporter) Start() {
	if r == nil || r.cfg.Report.HeartbeatEvery < 0 || r.begun.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.Load() || r.stopped {
		return
	}
	r.tell(events.WorkerOnline, nil)
	r.begun.Store(true)
	go r.beat()
}

// beat sends heartbeats until Stop is called.
func (r *Reporter) beat() {
	defer close(r.beats)
	ticker := time.NewTicker(r.cfg.Report.HeartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-ticker.C:
		}
		fields := r.fields()
		select {
		case <-r.stop: // worker-offline may have been sent meanwhile, and is the last word
			return
		default:
			r.tell(events.WorkerHeartbeat, fields)
		}
	}
}

// tell sends an event about the node.
func (r *Reporter) tell(typ string, fields map[string]any) {
	w := r.self
	w.Load, w.Mem = -1, -1
	if typ != events.WorkerOffline {
		w.Load, w.Mem = load(), memory()
	}
	if r.cfg.Counts != nil {
		n := r.cfg.Counts()
		w.Active, w.Reserved, w.Stuck, w.Processed = n.Active, n.Reserved, n.Stuck, n.Processed
	}
	r.Publish(&events.Event{Type: typ, Worker: &w, Fields: fields})
	r.countBus()
}

func (r *Reporter) countBus() {
	if c, ok := capability.As[events.DropCounter](r.cfg.Bus); ok && r.cfg.BusLost != nil {
		r.cfg.BusLost(c.Dropped())
	}
}

// fields asks for the further fields of a heartbeat. The bus leaves out those that have the name of another field.
func (r *Reporter) fields() (m map[string]any) {
	if r.cfg.Report.HeartbeatFields == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			m = nil
			r.warn(fmt.Errorf("HeartbeatFields panicked: %v", p))
		}
	}()
	return r.cfg.Report.HeartbeatFields()
}

// warn logs the first trouble; the rest is in the counters.
func (r *Reporter) warn(err error) {
	if r.warned.CompareAndSwap(false, true) {
		r.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "events are lost; further ones are only counted",
			slog.String("node", r.cfg.Report.NodeID), slog.Any("error", err))
	}
}

// Stop ends the heartbeats and, if there were any, sends worker-offline; then it waits within ctx until the bus has taken
// what it was handed. What it has not taken by then is dropped and counted. Further calls do nothing.
func (r *Reporter) Stop(ctx context.Context) {
	if r == nil {
		return
	}
	r.mu.Lock()
	begun, stopped := r.begun.Load(), r.stopped
	r.stopped = true
	r.mu.Unlock()
	if stopped {
		return
	}
	if begun {
		close(r.stop)
		select {
		case <-r.beats:
		case <-ctx.Done():
			r.warn(errors.New("HeartbeatFields does not return"))
		}
		r.tell(events.WorkerOffline, nil)
	}
	if r.queue != nil {
		r.queue.close(ctx)
	}
	r.countBus()
}
