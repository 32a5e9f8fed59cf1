// Package liveness reports which producers and consumers are alive. An [Observer] receives the
// events that they send about themselves, and reports a node that has been silent for too long.
package liveness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/report"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults and limits of a [Config].
const (
	DefaultOfflineAfter = 2 * time.Minute
	DefaultForgetAfter  = time.Hour
	DefaultMaxNodes     = 10_000
	// MaxFreq is the longest heartbeat interval of a node that counts; a longer one counts as this.
	MaxFreq = time.Hour
)

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("swarmiji: liveness: Run was called twice; make another observer")

// Config holds the settings of [New]. Bus is the only required field. The observer does not close
// the bus.
type Config struct {
	// Bus carries the events of nodes and the outages that the observer reports.
	Bus events.EventBus
	// NodeID names the observer in the worker-offline events that it sends. In the process of a
	// consumer or producer use the NodeID of that one. "": a name made of the host, the process and a
	// random part.
	NodeID string
	// OfflineAfter is the time after which a silent node counts as offline. If a node announces a
	// longer heartbeat interval, twice that interval counts instead. 0: 2 min.
	OfflineAfter time.Duration
	// ForgetAfter is the time after which an offline node is removed. 0: 1 h.
	ForgetAfter time.Duration
	// MaxNodes limits the number of nodes, each with up to 16 KiB of further fields. A new node then
	// replaces the node that has been offline for longest. If all are online, the new node is refused.
	// 0: 10,000.
	MaxNodes int
	// Silent disables the worker-offline events of the observer.
	Silent bool
	// OnChange is called when a node comes online or goes offline, also at its first event. Calls come
	// one at a time from Run's goroutine. While OnChange runs no outage is detected, and of several
	// changes of a node only the last is reported. A panic is logged. Nil: changes are not reported.
	OnChange func(Node)
	// Logger receives the errors that no method returns. Nil: slog.Default().
	Logger *slog.Logger
}

// complete sets the defaults in c, which it changes. It returns all problems of c joined in one
// error: a missing Bus and negative values.
func (c *Config) complete() error {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("config: Bus is not set"))
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"OfflineAfter", &c.OfflineAfter, DefaultOfflineAfter}, {"ForgetAfter", &c.ForgetAfter, DefaultForgetAfter}} {
		if *d.value < 0 {
			errs = append(errs, fmt.Errorf("config: %s is negative (%v)", d.name, *d.value))
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.MaxNodes < 0 {
		errs = append(errs, fmt.Errorf("config: MaxNodes is negative (%d)", c.MaxNodes))
	}
	if c.MaxNodes == 0 {
		c.MaxNodes = DefaultMaxNodes
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("swarmiji: liveness: %w", err)
	}
	return nil
}

// Observer keeps the state of all nodes. Each observer decides by itself: it uses the events of a
// node and ignores reports of other observers about it. Only the time at which an event arrives
// counts, because each node has its own clock. All methods are safe for concurrent use.
type Observer struct {
	cfg     Config
	report  *report.Reporter
	started atomic.Bool
	changed wake.Signal // notified when a node has changed

	mu    sync.Mutex
	table table
}

// New makes an observer with the defaults in the fields of c that are zero. It does no I/O and
// starts no goroutine. It returns all problems of c joined in one error.
func New(c Config) (*Observer, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &Observer{
		cfg:     c,
		report:  report.New(report.Config{Bus: c.Bus, Report: events.Report{NodeID: c.NodeID, HeartbeatEvery: -1}, Logger: c.Logger}),
		changed: wake.New(),
		table:   newTable(&c),
	}, nil
}

// Nodes returns all nodes, including offline ones, sorted by ID. It takes o.mu.
func (o *Observer) Nodes() []Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.all()
}

// Refused returns the number of events that were ignored because MaxNodes nodes were online; see
// Config.MaxNodes. It takes o.mu.
func (o *Observer) Refused() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.refused
}

// Run receives events and reports changes until ctx ends, and then returns nil. It waits for a bus
// that cannot be reached. It calls OnChange on its own goroutine, so that it ends only after a
// running call. At its end it waits up to a second for the bus.
//
// It returns [events.ErrClosed] when the bus is closed, another error of the subscription or of
// closing it, and [ErrRunning] if Run was called before.
func (o *Observer) Run(ctx context.Context) error {
	if !o.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	sub, err := o.subscribe(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("swarmiji: liveness: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	heard := make(chan error, 1)
	go func() {
		defer cancel()
		heard <- o.listen(ctx, sub)
	}()
	o.watch(ctx)
	cancel()
	err = <-heard
	last, done := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer done()
	o.report.Stop(last)
	if cerr := sub.Close(last); cerr != nil && err == nil && !errors.Is(cerr, events.ErrClosed) {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("swarmiji: liveness: %w", err)
	}
	return nil
}

// closeTimeout limits how long Run waits for the bus when it ends.
const closeTimeout = time.Second

// subscribe opens a subscription to events of nodes. It logs the first failure as a warning and
// tries again with backoff. If ctx ends or the bus is closed it returns the last error.
func (o *Observer) subscribe(ctx context.Context) (events.Subscription, error) {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		sub, err := o.cfg.Bus.Subscribe(ctx, events.Filter{Types: events.WorkerTypes()})
		if err == nil || ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
			return sub, err
		}
		if attempt == 0 {
			o.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "cannot subscribe to the event bus; trying again", slog.Any("error", err))
		}
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return nil, err
		}
	}
}

// listen applies events to the table until ctx ends, and returns nil then. It waits for nothing
// else, so that each event gets the time at which it arrived. It wakes watch after each change of
// a node. Returns an error of the subscription. It takes o.mu.
func (o *Observer) listen(ctx context.Context, sub events.Subscription) error {
	for ctx.Err() == nil {
		e, err := sub.Receive(ctx)
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			break
		}
		o.mu.Lock()
		changed := o.table.apply(&e, time.Now())
		o.mu.Unlock()
		if changed {
			o.changed.Notify()
		}
	}
	return nil
}

// watch calls checkSilent when it is due, at least every eighth of OfflineAfter, and
// notifyChanges after each change and check. It returns when ctx ends.
func (o *Observer) watch(ctx context.Context) {
	tick := max(o.cfg.OfflineAfter/8, time.Millisecond)
	due := time.Now().Add(tick)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.changed:
		case <-timer.C:
			due = o.checkSilent(time.Now(), due, tick)
			timer.Reset(time.Until(due))
		}
		o.notifyChanges(ctx)
	}
}

// checkSilent marks nodes that are silent for too long as offline, and sends worker-offline for
// them. It returns the time of the next check, at most tick from now. due is the time for which
// this check was planned. After a delay of more than tick it gives all nodes new deadlines first.
// It takes o.mu, but not while it sends.
func (o *Observer) checkSilent(now, due time.Time, tick time.Duration) time.Time {
	o.mu.Lock()
	if now.Sub(due) > tick {
		// This process was suspended, or OnChange took long: it may have missed heartbeats.
		o.table.resetDeadlines(now)
	}
	gone, next := o.table.sweep(now)
	o.mu.Unlock()
	for i := range gone {
		o.announce(&gone[i], now)
	}
	if last := now.Add(tick); next.IsZero() || next.After(last) {
		return last
	}
	return next
}

// announce sends worker-offline about n with the data of its last event, and does not wait for the
// bus. It sends nothing if the observer is silent or n is its own node.
func (o *Observer) announce(n *Node, now time.Time) {
	if o.cfg.Silent || n.ID == o.cfg.NodeID { // an observer that misses its own events cannot judge
		return
	}
	w := n.Worker
	w.Observer, w.Load, w.Mem = o.cfg.NodeID, -1, -1
	o.report.Send(&events.Event{Type: events.WorkerOffline, NodeID: n.ID, Time: now, Worker: &w})
}

// notifyChanges calls OnChange for every node whose state differs from the last reported one. It
// blocks during the calls, and stops between two calls if ctx ends. It takes o.mu, but not during
// OnChange.
func (o *Observer) notifyChanges(ctx context.Context) {
	for ctx.Err() == nil {
		o.mu.Lock()
		n, ok := o.table.change()
		o.mu.Unlock()
		if !ok {
			return
		}
		o.call(n)
	}
}

// call calls OnChange with n, if it is set. It logs a panic.
func (o *Observer) call(n Node) {
	if o.cfg.OnChange == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			o.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "OnChange panicked",
				slog.String("node", n.ID), slog.String("panic", fmt.Sprint(p)))
		}
	}()
	o.cfg.OnChange(n)
}
