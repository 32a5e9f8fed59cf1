// Package liveness knows who is alive: an [Observer] listens to the events that producers and consumers send about
// themselves, and tells when one of them has not been heard of for too long.
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
	// MaxFreq is how long a gap between its heartbeats a node can announce; a longer one counts as this.
	MaxFreq = time.Hour
)

// ErrRunning is what Run returns when it was called before.
var ErrRunning = errors.New("swarmiji: liveness: Run was called before")

// Config of [New]. Only Bus must be set. The observer does not close the bus.
type Config struct {
	// Bus is where nodes are heard, and where their outages are told of.
	Bus events.EventBus
	// NodeID names the observer in the worker-offline events that it sends; in the process of a consumer or producer it is
	// that one's NodeID. "": made of host, process and chance.
	NodeID string
	// OfflineAfter is how long a node may be silent. One that announces rare heartbeats may be silent for twice the time
	// between two of them. 0: 2 min.
	OfflineAfter time.Duration
	// ForgetAfter is how long a node is kept after it has gone. 0: 1 h.
	ForgetAfter time.Duration
	// MaxNodes bounds how many nodes are kept, each with up to 16 KiB of further fields. When there are as many, the one
	// that has been gone for longest gives way to a new one; if all are alive, the new one is refused. 0: 10,000.
	MaxNodes int
	// Silent: no worker-offline events are sent.
	Silent bool
	// OnChange is called when a node has come or gone, also with the first sign of it, one call at a time and from Run's
	// goroutine. While it runs no outage is noticed, and a node that comes and goes meanwhile is only told of as it is in the
	// end. What it panics with is logged. nil: nobody is told.
	OnChange func(Node)
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
}

// complete validates c and fills in its defaults.
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
			errs = append(errs, fmt.Errorf("config: %s is %v", d.name, *d.value))
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.MaxNodes < 0 {
		errs = append(errs, fmt.Errorf("config: MaxNodes is %d", c.MaxNodes))
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

// Observer keeps who is alive. Every observer judges for itself: it believes what a node says of itself, and not what
// others say of a node. Only the times at which it hears something count, since nodes have clocks of their own. All methods
// may be called from any goroutine.
type Observer struct {
	cfg     Config
	report  *report.Reporter
	started atomic.Bool
	news    wake.Signal // a node has changed

	mu    sync.Mutex
	table table
}

// New makes an observer, or returns every problem of the configuration, joined. It does no I/O and starts nothing.
func New(c Config) (*Observer, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return &Observer{
		cfg:    c,
		report: report.New(report.Config{Bus: c.Bus, Report: events.Report{NodeID: c.NodeID, HeartbeatEvery: -1}, Logger: c.Logger}),
		news:   wake.New(),
		table:  newTable(&c),
	}, nil
}

// Nodes returns all nodes, those that have gone included, sorted by ID.
func (o *Observer) Nodes() []Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.all()
}

// Refused returns how many events came of nodes for which there was no room; see Config.MaxNodes.
func (o *Observer) Refused() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.table.refused
}

// Run listens until ctx ends, and then returns nil. A bus that cannot be reached is waited for. It returns
// [events.ErrClosed] when the bus is closed.
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

// closeTimeout bounds what Run waits for the bus when it ends.
const closeTimeout = time.Second

func (o *Observer) subscribe(ctx context.Context) (events.Subscription, error) {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		sub, err := o.cfg.Bus.Subscribe(ctx, events.Filter{Types: events.WorkerTypes()})
		if err == nil || ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
			return sub, err
		}
		o.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "waiting for the event bus", slog.Any("error", err))
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return nil, err
		}
	}
}

// listen takes in events until ctx ends. It waits for nothing else, so that the time at which it hears is the time at which
// the event came.
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
		changed := o.table.hear(&e, time.Now())
		o.mu.Unlock()
		if changed {
			o.news.Notify()
		}
	}
	return nil
}

// watch looks for nodes that are silent, and tells of changes, until ctx ends.
func (o *Observer) watch(ctx context.Context) {
	tick := max(o.cfg.OfflineAfter/8, time.Millisecond)
	due := time.Now().Add(tick)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.news:
		case <-timer.C:
			due = o.look(time.Now(), due, tick)
			timer.Reset(time.Until(due))
		}
		o.tell(ctx)
	}
}

// look sends worker-offline for those that are silent for too long, and returns when to look again. due is when this look
// should have been.
func (o *Observer) look(now, due time.Time, tick time.Duration) time.Time {
	o.mu.Lock()
	if now.Sub(due) > tick {
		// This process was stopped for a while, or OnChange took its time: what it did not hear meanwhile says nothing.
		o.table.excuse(now)
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

func (o *Observer) announce(n *Node, now time.Time) {
	if o.cfg.Silent || n.ID == o.cfg.NodeID { // who does not hear itself can tell others nothing
		return
	}
	w := n.Worker
	w.Observer, w.Load, w.Mem = o.cfg.NodeID, -1, -1
	o.report.Send(&events.Event{Type: events.WorkerOffline, NodeID: n.ID, Time: now, Worker: &w})
}

// tell calls OnChange for every node that is not as it was told of last.
func (o *Observer) tell(ctx context.Context) {
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
