package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/nodeid"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultMax is how many revoked ids a list knows for certain.
const DefaultMax = 50_000

// ErrClosed is what a closed [List] returns.
var ErrClosed = errors.New("revoke: list closed")

// Config of [New]. Only Events must be set; the list does not close it.
type Config struct {
	// Events is the bus that keeps the revocations, configured with [Retention]. One that is no [events.Retainer] is refused
	// unless Live is set.
	Events events.EventBus
	// Live takes a bus that keeps nothing. A revocation then reaches who listens at that moment: a consumer started later
	// does not know it, and one more than Max makes a list forget the oldest. False: such a bus is an error.
	Live bool
	// Max is how many revoked ids are known for certain, the newest. Whether an older one is revoked the bus is asked for,
	// when a filter says that it may be. 0: 50,000.
	Max int
	// StartLimit is how long, from its first use, a list waits for the bus to hand over what it keeps, before tasks are
	// started all the same, which an error in the log tells. 0: for ever, with a warning every 30 s: a task that starts
	// late can be waited for, and one that was revoked and runs cannot be undone. Most often the bus is where the broker
	// is, and without a broker no task comes either.
	StartLimit time.Duration
	// NodeID names this process in events. "": made of host, process and chance.
	NodeID string
	// Logger gets what nobody is returned. nil: slog.Default().
	Logger *slog.Logger
}

// List is what this process knows of the revocations. It reads the bus in a goroutine that begins with the first call of
// [List.Ready], and ends with Close. One list may serve a producer and several consumers. Safe for concurrent use.
type List struct {
	cfg   Config
	begin sync.Once
	begun time.Time
	ctx   context.Context // of the goroutines; ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup

	caughtUp chan struct{} // closed when all that was kept is read
	broken   chan struct{} // closed when the bus cannot serve, for err
	err      error
	late     sync.Once // StartLimit was reported

	any     atomic.Bool // something is in set or rules
	telling sync.Mutex  // watchers are called one at a time

	mu       sync.RWMutex
	closed   bool
	set      set
	rules    rules
	watchers []*watcher
	cleared  map[task.ID]struct{} // that the filter claims, and the bus does not know
	next     *question            // that is still to be asked
	asking   bool
	asked    uint64 // questions so far
}

type watcher struct{ fn func(Revocation) }

// New checks c and makes a list, or returns all its problems. It does no I/O and starts nothing.
func New(c Config) (*List, error) {
	var errs []error
	if c.Events == nil {
		errs = append(errs, errors.New("revoke: Events is not set"))
	} else if err := checkBus(c.Events, c.Live); err != nil {
		errs = append(errs, err)
	}
	if c.Max < 0 || c.StartLimit < 0 {
		errs = append(errs, errors.New("revoke: Max and StartLimit must not be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Max == 0 {
		c.Max = DefaultMax
	}
	if c.NodeID == "" {
		c.NodeID = nodeid.New()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return newList(c), nil
}

// newList makes a list of a configuration that is complete.
func newList(c Config) *List {
	l := &List{cfg: c, caughtUp: make(chan struct{}), broken: make(chan struct{}), set: set{max: c.Max, forget: c.Live}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// checkBus refuses a bus that keeps no revocations, as far as it tells.
func checkBus(bus events.EventBus, live bool) error {
	if live {
		return nil
	}
	if _, ok := capability.As[events.Retainer](bus); !ok {
		return fmt.Errorf("revoke: %w: consumers that start later would not know what was revoked; use another bus, or set Live", events.ErrNotRetained)
	}
	if keep, ok := retention(bus); ok && !keep.Keeps(events.TaskRevoke) {
		return fmt.Errorf("revoke: %w: configure it with revoke.Retention(), or set Live", events.ErrNotRetained)
	}
	return nil
}

// retention returns what a bus keeps, if it tells.
func retention(bus events.EventBus) (events.Retention, bool) {
	if t, ok := capability.As[events.RetentionTeller](bus); ok {
		return t.Retention(), true
	}
	return events.Retention{}, false
}

// waitingEvery is how often a wait for the bus is reported.
const waitingEvery = 30 * time.Second

// Ready waits until everything is known that was revoked before the call of the first Ready, or for ctx. It starts the list.
// When the bus stays away longer than StartLimit it returns nil all the same. Errors are ctx's cause, [ErrClosed], and
// those that waiting does not mend, such as [events.ErrNotRetained].
func (l *List) Ready(ctx context.Context) error {
	l.start()
	select {
	case <-l.caughtUp:
		return nil
	default:
	}
	var limit <-chan time.Time
	if l.cfg.StartLimit > 0 {
		timer := time.NewTimer(l.cfg.StartLimit - time.Since(l.begun))
		defer timer.Stop()
		limit = timer.C
	}
	tick := time.NewTicker(waitingEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.caughtUp:
			return nil
		case <-l.broken:
			return l.err
		case <-l.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("revoke: waiting for the revocations that the bus keeps: %w", context.Cause(ctx))
		case <-limit:
			l.late.Do(func() {
				l.cfg.Logger.LogAttrs(ctx, slog.LevelError, "revocations could not be read in time; tasks start without knowing them",
					slog.Duration("limit", l.cfg.StartLimit))
			})
			return nil
		case <-tick.C:
			l.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "waiting for the revocations that the bus keeps; no task starts before")
		}
	}
}

// start begins to read.
func (l *List) start() {
	l.begin.Do(func() {
		l.begun = time.Now()
		l.spawn(l.run)
		l.spawn(l.answerAsks)
	})
}

// spawn runs fn in a goroutine that Close waits for, unless the list is closed.
func (l *List) spawn(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Go(fn)
	}
}

// run reads the bus until the list is closed, through all its troubles.
func (l *List) run() {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		err := l.follow()
		if l.ctx.Err() != nil {
			return
		}
		if errors.Is(err, events.ErrNotRetained) || errors.Is(err, events.ErrClosed) {
			l.err = err
			close(l.broken)
			l.cfg.Logger.LogAttrs(l.ctx, slog.LevelError, "revocations are not heard any more", slog.Any("error", err))
			return
		}
		l.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "revocations are not heard just now, trying again", slog.Any("error", err))
		wake.Sleep(l.ctx, gap.Interval(attempt))
	}
}

// follow reads all that the bus keeps, and what comes.
func (l *List) follow() error {
	r, err := openReader(l.ctx, l.cfg.Events, l.cfg.Live, time.Time{})
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.publish(l.ctx, marker(l.cfg.NodeID)); err != nil {
		return err
	}
	for {
		v, err := r.next(l.ctx)
		if err != nil {
			return err
		}
		l.apply(&v)
		if len(r.unseen) == 0 {
			select {
			case <-l.caughtUp:
			default:
				close(l.caughtUp)
			}
		}
	}
}

// apply takes a revocation in, and tells the watchers.
func (l *List) apply(v *Revocation) {
	if len(v.IDs) == 0 && v.Selector.isZero() {
		return
	}
	now, ends := time.Now().UnixMilli(), v.ends()
	if ends <= now {
		return
	}
	l.mu.Lock()
	forgotten := l.set.forgotten
	for _, id := range v.IDs {
		l.set.add(id, ends, now)
		delete(l.cleared, id)
	}
	lost := !v.Selector.isZero() && l.rules.add(v.Selector, ends, now)
	forgotten = l.set.forgotten - forgotten
	watchers := l.watchers
	l.mu.Unlock()
	l.any.Store(true)
	if lost || forgotten > 0 {
		l.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "there are too many revocations; some are forgotten",
			slog.Uint64("ids", forgotten), slog.Bool("selector", lost))
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	for _, w := range watchers {
		w.fn(*v)
	}
}

// Watch has fn called with each revocation, when the list knows it, until stop is called: one call at a time, from the
// list's goroutine or that of [List.Revoke], which wait for it. The same revocation may come more than once. fn must not call Revoke.
func (l *List) Watch(fn func(Revocation)) (stop func()) {
	w := &watcher{fn}
	change := func(f func([]*watcher) []*watcher) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers = f(slices.Clone(l.watchers))
	}
	change(func(ws []*watcher) []*watcher { return append(ws, w) })
	return func() {
		change(func(ws []*watcher) []*watcher { return slices.DeleteFunc(ws, func(o *watcher) bool { return o == w }) })
	}
}

// Check reports whether a task that came from queue is revoked, as far as is known now; it does not wait for Ready. When the
// task may be one of those that are not in memory any more the bus is asked, and then it may wait, within ctx and
// 30 s; an error says that the bus did not answer, and that the task should not be started.
func (l *List) Check(ctx context.Context, queue string, e *task.Envelope) (bool, error) {
	switch l.look(queue, e) {
	case yes:
		return true, nil
	case no:
		return false, nil
	}
	return l.ask(ctx, e.ID)
}

// Knows is Check without asking the bus: it reports whether the task is known to be revoked.
func (l *List) Knows(queue string, e *task.Envelope) bool { return l.look(queue, e) == yes }

func (l *List) look(queue string, e *task.Envelope) finding {
	if !l.any.Load() {
		return no
	}
	now := time.Now().UnixMilli()
	l.mu.RLock()
	defer l.mu.RUnlock()
	found := l.set.find(e.ID, now)
	switch {
	case found == yes, l.rules.match(queue, e, now):
		return yes
	case found == maybe:
		if _, ok := l.cleared[e.ID]; ok {
			return no
		}
	}
	return found
}

// Close ends the list, within ctx; what it knows can still be looked up. It is idempotent.
func (l *List) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	ended := make(chan struct{})
	go func() {
		l.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("revoke: closing the list: %w", context.Cause(ctx))
	}
}
