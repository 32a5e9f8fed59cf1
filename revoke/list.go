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

// DefaultMax is the default of Config.Max.
const DefaultMax = 50_000

// ErrClosed is returned by methods of a closed [List].
var ErrClosed = errors.New("revoke: list closed")

// Config configures a [List]. Only Events must be set. The list does not close it.
type Config struct {
	// Events is the bus that stores the revocations, configured with [Retention]. New refuses a bus
	// that is not an [events.Retainer], unless Live is set.
	Events events.EventBus
	// Live accepts a bus that stores no events. A revocation then reaches only processes that listen
	// at that moment: consumers that start later do not know it. With more than Max ids the list
	// forgets the oldest. Default: false, such a bus is an error.
	Live bool
	// Max is the number of revoked ids that the list stores exactly, the newest ones. For older ids it
	// has a filter. If the filter finds a task's id, the list asks the bus. Default: 50,000.
	Max int
	// StartLimit limits how long, from the first use of the list, tasks wait for the stored
	// revocations. After it, tasks start without them, and the list logs an error.
	//
	// Default: no limit, with a warning every 30 s. A late task can wait, but a revoked task that runs
	// cannot be undone. Usually the bus and the broker are the same server, so no tasks arrive while
	// the bus is unavailable.
	StartLimit time.Duration
	// NodeID is the name of this process in events. Default: made of the host name, the process id and
	// random characters.
	NodeID string
	// Logger gets errors that no method returns. Default: slog.Default().
	Logger *slog.Logger
}

// List holds the revocations that this process knows. The first call of [List.Ready] starts
// goroutines that read the bus; Close ends them. A producer and several consumers may share one
// List. Safe for concurrent use.
type List struct {
	cfg   Config
	begin sync.Once
	begun time.Time
	ctx   context.Context // for the goroutines; ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup

	caughtUp chan struct{} // closed when all stored revocations are read
	broken   chan struct{} // closed when the bus failed with err
	err      error
	late     sync.Once // StartLimit was logged

	any     atomic.Bool // set or rules is not empty
	telling sync.Mutex  // held while watchers are called

	mu       sync.RWMutex
	closed   bool
	set      set
	rules    rules
	watchers []*watcher
	cleared  map[task.ID]struct{} // ids found by the filter, but not by the bus
	next     *question            // not yet sent
	asking   bool
	asked    uint64 // number of requests to the bus
}

// watcher is a function of Watch. A pointer to it identifies one call of Watch.
type watcher struct{ fn func(Revocation) }

// New returns a List. Its error joins all problems of the configuration. It does no I/O and starts
// nothing.
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

// newList returns a list for a configuration with its defaults set. It starts nothing.
func newList(c Config) *List {
	l := &List{cfg: c, caughtUp: make(chan struct{}), broken: make(chan struct{}), set: set{max: c.Max, forget: c.Live}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// checkBus returns an error that wraps [events.ErrNotRetained] if the bus does not store
// revocations, as far as it reports that. With live it returns nil.
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

// retention returns the retention of a bus, and false if the bus does not report it.
func retention(bus events.EventBus) (events.Retention, bool) {
	if t, ok := capability.As[events.RetentionTeller](bus); ok {
		return t.Retention(), true
	}
	return events.Retention{}, false
}

// waitingEvery is the interval between warnings while Ready waits.
const waitingEvery = 30 * time.Second

// Ready starts the list and blocks until it knows all revocations from before its start. If
// StartLimit passes first, Ready logs an error once and returns nil. It logs a warning every 30 s.
//
// Returns the cause if ctx ends, [ErrClosed] after Close, and permanent errors of the bus such as
// [events.ErrNotRetained].
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

// start starts the goroutines of the list with the first call. Later calls and calls after Close
// start nothing.
func (l *List) start() {
	l.begin.Do(func() {
		l.begun = time.Now()
		l.spawn(l.run)
		l.spawn(l.answerAsks)
	})
}

// spawn runs fn on a goroutine that Close waits for. It does nothing if the list is closed. It
// takes l.mu.
func (l *List) spawn(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Go(fn)
	}
}

// run reads the bus and adds its revocations to the list. It blocks until the list is closed or the
// bus fails permanently; then it sets l.err and closes l.broken. After other errors it waits and
// retries, and logs the first error of each interruption.
func (l *List) run() {
	var gap task.Backoff
	for attempt := 0; ; attempt++ {
		received, err := l.follow()
		if l.ctx.Err() != nil {
			return
		}
		if errors.Is(err, events.ErrNotRetained) || errors.Is(err, events.ErrClosed) {
			l.err = err
			close(l.broken)
			l.cfg.Logger.LogAttrs(l.ctx, slog.LevelError, "revocations can no longer be received", slog.Any("error", err))
			return
		}
		if received {
			attempt = 0
		}
		if attempt == 0 {
			l.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "revocations cannot be received; trying again", slog.Any("error", err))
		}
		wake.Sleep(l.ctx, gap.Interval(attempt))
	}
}

// follow reads all stored revocations and then new ones, and adds them to the list. It blocks until
// l.ctx ends or the bus fails, and returns that error. It closes l.caughtUp when the stored ones
// are read. From then on it answers the revocations that ask for answers, after it has added them.
// received reports whether it has read any event, such as its own marker.
func (l *List) follow() (received bool, err error) {
	r, err := openReader(l.ctx, l.cfg.Events, l.cfg.Live, time.Time{})
	if err != nil {
		return false, err
	}
	defer r.close()
	if err := r.publish(l.ctx, marker(l.cfg.NodeID)); err != nil {
		return false, err
	}
	for {
		v, err := r.next(l.ctx)
		if err != nil {
			return received, err
		}
		received = true
		l.apply(&v)
		if len(r.unseen) == 0 {
			select {
			case <-l.caughtUp:
			default:
				close(l.caughtUp)
			}
		}
		if v.answer && l.current() && l.watched() {
			// fails only if the bus is closed; then the stream ends as well
			_ = l.cfg.Events.Publish(l.ctx, hearingEvent(typeAnswer, v.token, l.cfg.NodeID))
		}
	}
}

// current reports whether the list has read all revocations from before its start.
func (l *List) current() bool {
	select {
	case <-l.caughtUp:
		return true
	default:
		return false
	}
}

// apply adds a revocation to the list and calls the watchers, one revocation at a time. It ignores
// an empty revocation and one that is over. If the list is full and forgets older ones, it logs
// that. It takes l.mu, and l.telling while it calls the watchers.
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
		l.cfg.Logger.LogAttrs(l.ctx, slog.LevelWarn, "there are too many revocations; the oldest are forgotten",
			slog.Uint64("ids", forgotten), slog.Bool("selector", lost))
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	for _, w := range watchers {
		w.fn(*v)
	}
}

// Watch calls fn for each revocation that the list adds, until stop is called. Calls come one at a
// time, from the list's goroutine or from [List.Revoke], which block meanwhile. The same revocation
// may come more than once. fn must not call Revoke. Watch does not start the list, and does not
// call fn for revocations that the list has already. stop does not wait: a call that runs may end
// later.
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

// Check reports whether a task from queue is revoked. It does not wait for Ready.
//
// If the task may have an older revocation that is not in memory, Check asks the bus. It then
// blocks until the bus answers or ctx ends. Each request to the bus takes at most 30 s. After an
// error the task should not be started.
func (l *List) Check(ctx context.Context, queue string, e *task.Envelope) (bool, error) {
	switch l.lookup(queue, e) {
	case yes:
		return true, nil
	case no:
		return false, nil
	}
	return l.ask(ctx, e.ID)
}

// Knows reports whether the list knows in memory that the task is revoked. It never asks the bus.
func (l *List) Knows(queue string, e *task.Envelope) bool { return l.lookup(queue, e) == yes }

// lookup returns whether the task from queue is revoked, as far as this process knows: yes, no, or
// maybe if the bus must be asked. It takes l.mu.
func (l *List) lookup(queue string, e *task.Envelope) finding {
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

// Close ends the goroutines of the list and waits for them, or returns an error if ctx ends first.
// Later calls of Revoke and lookups that need the bus return [ErrClosed]. The revocations in memory
// can still be looked up. Close is idempotent.
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
