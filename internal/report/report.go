// Package report sends the events of producers and consumers about tasks and about their nodes. It
// passes events to an event bus without waiting for the bus, so that both sides behave alike.
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

// MinEvery is the shortest time between heartbeats that Check accepts.
const MinEvery = 10 * time.Millisecond

// Config configures a Reporter, see [New].
type Config struct {
	Report events.Report
	Bus    events.EventBus // nil: New returns nil
	Role   string
	// Counts returns the counters for a heartbeat. nil: all counters are 0.
	Counts func() Counts
	// Lost gets the number of events that were not passed to the bus. nil: not called.
	Lost func(n int64)
	// BusLost gets the number of events that the bus has dropped since it was opened, if the bus
	// counts them. It is called with each heartbeat and at the end. nil: not called.
	BusLost func(total uint64)
	Logger  *slog.Logger // required
	// Describe makes a preview if Report.Preview is nil or panics, or the payload is empty.
	Describe func(contentType string, data []byte, show bool) string
}

// Counts holds the counters of a heartbeat, see [events.Worker].
type Counts struct {
	Active, Reserved, Stuck int
	Processed               int64
	Queues                  []string // of a consumer
}

// Check returns an error for values of r that a producer or a consumer refuses.
func Check(r *events.Report) error {
	if d := r.HeartbeatEvery; d > 0 && d < MinEvery {
		return fmt.Errorf("config: HeartbeatEvery is %v, at least %v", d, MinEvery)
	}
	if n := r.KeepArguments; n < 0 || n > events.MaxOriginal {
		return fmt.Errorf("config: KeepArguments is %d, from 0 to %d", n, events.MaxOriginal)
	}
	return nil
}

// Reporter sends the events of one node. Make one with [New]. A nil Reporter sends nothing; the
// methods that users call accept it. Safe for concurrent use.
type Reporter struct {
	cfg    Config
	prompt events.PromptPublisher // the bus, if its publishing never blocks
	queue  *queue                 // used otherwise
	self   events.Worker

	mu      sync.Mutex
	begun   atomic.Bool // written with mu held
	stopped bool
	stop    chan struct{}
	beats   chan struct{} // closed when the heartbeat goroutine has returned
	warned  atomic.Bool
}

// New makes a Reporter, or returns nil if c.Bus is nil. It does no I/O and starts no goroutine.
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

// Publish passes an event of this node to the bus. It sets the node id, and the time if that is
// zero. It never waits and never fails; lost events are counted.
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

// Send passes an event about another node to the bus unchanged. It never waits and never fails;
// lost events are counted. The Reporter must not be nil.
func (r *Reporter) Send(e *events.Event) {
	if r.queue != nil {
		r.queue.add(e)
		return
	}
	if err := r.prompt.PublishNow(*e); err != nil {
		r.cfg.Lost(1)
	}
}

// Start sends worker-online and then heartbeats until Stop. Later calls, calls after Stop, and
// calls with a negative HeartbeatEvery do nothing.
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

// beat is the body of the goroutine of heartbeats: it sends one at each interval until Stop is
// called, and then closes r.beats.
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
		case <-r.stop: // worker-offline may have been sent meanwhile and must be the last event
			return
		default:
			r.tell(events.WorkerHeartbeat, fields)
		}
	}
}

// tell sends an event of type typ about this node, with the present counters, and passes the
// dropped events of the bus to BusLost.
func (r *Reporter) tell(typ string, fields map[string]any) {
	w := r.self
	w.Load, w.Mem = -1, -1
	if typ != events.WorkerOffline {
		w.Load, w.Mem = load(), memory()
	}
	if r.cfg.Counts != nil {
		n := r.cfg.Counts()
		w.Active, w.Reserved, w.Stuck, w.Processed, w.Queues = n.Active, n.Reserved, n.Stuck, n.Processed, n.Queues
	}
	r.Publish(&events.Event{Type: typ, Worker: &w, Fields: fields})
	r.countBus()
}

// countBus passes the number of events that the bus has dropped to BusLost, if the bus counts them.
func (r *Reporter) countBus() {
	if c, ok := capability.As[events.DropCounter](r.cfg.Bus); ok && r.cfg.BusLost != nil {
		r.cfg.BusLost(c.Dropped())
	}
}

// fields calls HeartbeatFields for the additional fields of a heartbeat. It recovers from a panic.
// The bus omits fields that have the name of another field.
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

// warn logs err as the reason of lost events. Only the first call logs.
func (r *Reporter) warn(err error) {
	if r.warned.CompareAndSwap(false, true) {
		r.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "events are lost; further ones are only counted",
			slog.String("node", r.cfg.Report.NodeID), slog.Any("error", err))
	}
}

// grace limits how long Stop waits.
const grace = time.Second

// Stop ends the heartbeats and, if there were any, sends worker-offline. Then it waits until the
// bus has taken all events, or ctx or a second ends. The remaining events are dropped and counted.
// Further calls do nothing.
func (r *Reporter) Stop(ctx context.Context) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
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
