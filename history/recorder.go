package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/task"
)

// Defaults of [RecorderConfig].
const (
	DefaultMaxAge     = 7 * 24 * time.Hour
	DefaultMaxRecords = 1_000_000
	DefaultMaxWaiting = 50_000
)

const (
	linger     = 100 * time.Millisecond // longest wait of an event for others to share its transaction
	batchSize  = 1000                   // events that are written at once; tasks of one transaction
	aliveEvery = time.Second            // a recorder without events writes its time
	sweepEvery = time.Minute
	sweepPause = 50 * time.Millisecond // between two transactions of a sweep, for the events
	lastWrite  = 5 * time.Second       // limits the write after Run's ctx ended
	overlap    = time.Minute           // replayed before the last write of an earlier recorder
)

// RecorderConfig holds the settings of [NewRecorder]. Bus and Store are required.
type RecorderConfig struct {
	Bus   events.EventBus
	Store Store

	// MaxAge limits the time for which a record is kept after its last change. 0: [DefaultMaxAge], 7
	// days.
	MaxAge time.Duration
	// MaxRecords is the number of kept records. Those with the oldest changes are deleted first. 0:
	// [DefaultMaxRecords], 1,000,000. Negative: any number.
	MaxRecords int
	// MaxWaiting is the number of events that wait in memory while the store is slow. Further events
	// are dropped. 0: [DefaultMaxWaiting], 50,000.
	MaxWaiting int
	// Logger receives warnings when events are dropped and when the store fails. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Recorder writes the events of a bus to a store. Make one with [NewRecorder]. Safe for concurrent
// use.
type Recorder struct {
	cfg     RecorderConfig
	running atomic.Bool
	written atomic.Uint64
	dropped atomic.Uint64
	refused atomic.Uint64
	full    wake.Signal   // notified when batchSize events wait
	listens chan struct{} // closed when Run listens

	mu      sync.Mutex
	waiting map[task.ID]*told
	events  int       // in waiting
	lost    uint64    // events that were dropped since the last write
	since   time.Time // when the first of them was dropped
}

// told holds the facts that a number of events told about one task.
type told struct {
	facts  *Facts
	events int
}

// Stats are counts of a [Recorder].
type Stats struct {
	Recorded uint64 // events that were written to the store
	Dropped  uint64 // events that the recorder or its subscription dropped
	Refused  uint64 // events that were skipped, because the store refuses them for good
}

// ErrRunning is returned by a second call of Run.
var ErrRunning = errors.New("history: the recorder was started already")

// NewRecorder checks c and makes a Recorder. It does no I/O. It returns all problems of c in one
// error.
func NewRecorder(c RecorderConfig) (*Recorder, error) {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("history: RecorderConfig.Bus is required"))
	}
	if c.Store == nil {
		errs = append(errs, errors.New("history: RecorderConfig.Store is required"))
	}
	if c.MaxAge < 0 || c.MaxWaiting < 0 {
		errs = append(errs, fmt.Errorf("history: MaxAge is %v and MaxWaiting %d; they must not be negative", c.MaxAge, c.MaxWaiting))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.MaxAge, c.MaxRecords, c.MaxWaiting = cmp.Or(c.MaxAge, DefaultMaxAge), cmp.Or(c.MaxRecords, DefaultMaxRecords), cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Recorder{cfg: c, full: wake.New(), listens: make(chan struct{}), waiting: make(map[task.ID]*told)}, nil
}

// Stats returns the counts since NewRecorder. Safe for concurrent use with Run.
func (r *Recorder) Stats() Stats {
	return Stats{Recorded: r.written.Load(), Dropped: r.dropped.Load(), Refused: r.refused.Load()}
}

// Listening returns a channel that is closed when Run listens. Later events are recorded. Earlier
// events are recorded only if the bus retains them. If Run returns before that, the channel stays
// open. Safe for concurrent use.
func (r *Recorder) Listening() <-chan struct{} { return r.listens }

// Run records events until ctx ends, and then writes the waiting ones. It returns nil after that.
// While the store fails, it tries again, and events wait. It skips events that the store refuses
// for good.
//
// Before it listens it looks when a recorder wrote last. If the bus retains events, it replays
// those since then. Otherwise it marks that time as a [Gap].
//
// Returns [ErrRunning] for a second call, and the error of a bus that refuses to be listened to or
// was closed.
func (r *Recorder) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	last, err := r.record(ctx, &Batch{Now: time.Now()})
	if err != nil {
		return nil // ctx has ended
	}
	sub, gap, err := r.listen(ctx, last)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("history: listen: %w", err)
	}
	close(r.listens)
	both, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { err = r.receive(both, sub); cancel() })
	parts.Go(func() { r.write(both, sub, gap) })
	parts.Go(func() { r.sweep(both) })
	parts.Wait()
	closing, end := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer end()
	_ = sub.Close(closing) // no further event is needed
	if ctx.Err() == nil {
		return fmt.Errorf("history: listen: %w", err)
	}
	return nil
}

// listen opens the stream of events: those that the bus retains since last, or only new ones. last
// is the time of the last write of any recorder, or zero. The gap is the time since last whose
// events the stream does not have, or nil. Returns the error of the bus.
func (r *Recorder) listen(ctx context.Context, last time.Time) (events.Subscription, *Gap, error) {
	filter := events.Filter{Types: EventTypes()}
	if bus, ok := capability.As[events.Retainer](r.cfg.Bus); ok {
		since := last
		if !last.IsZero() {
			since = last.Add(-overlap)
		}
		sub, err := bus.Replay(ctx, filter, since)
		if err == nil {
			return sub, r.unretained(last), nil
		}
		if !errors.Is(err, events.ErrNotRetained) {
			return nil, nil, err
		}
	}
	sub, err := r.cfg.Bus.Subscribe(ctx, filter)
	if err != nil || last.IsZero() {
		return sub, nil, err
	}
	return sub, &Gap{Since: last, Before: time.Now()}, nil
}

// unretained returns the time since the last write whose events the bus does not retain any more,
// or nil.
func (r *Recorder) unretained(last time.Time) *Gap {
	bus, ok := capability.As[events.RetentionTeller](r.cfg.Bus)
	if !ok || last.IsZero() {
		return nil
	}
	keeps, kept := bus.Retention(), true
	for _, typ := range EventTypes() {
		kept = kept && keeps.Keeps(typ)
	}
	oldest := time.Now()
	if kept {
		oldest = oldest.Add(-keeps.Age)
	}
	if !last.Before(oldest) {
		return nil
	}
	return &Gap{Since: last, Before: oldest}
}

// receive adds events to the waiting ones until the stream ends, and returns the stream's error. It
// takes r.mu for each event.
func (r *Recorder) receive(ctx context.Context, sub events.Subscription) error {
	for {
		e, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		r.add(&e)
	}
}

// add adds an event to the waiting ones, or drops and counts it if MaxWaiting events wait. An event
// without a time gets the current one. add ignores events that are not about a task. It wakes write
// when batchSize events wait. It takes r.mu.
func (r *Recorder) add(e *events.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	f := NewFacts(e)
	if f == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events >= r.cfg.MaxWaiting {
		r.drop(1)
		return
	}
	if have, ok := r.waiting[f.ID]; ok {
		have.facts.Merge(f)
		have.events++
	} else {
		r.waiting[f.ID] = &told{f, 1}
	}
	if r.events++; r.events == batchSize {
		r.full.Notify()
	}
}

// drop counts n dropped events, and remembers since when events are lost. Call it with r.mu held.
func (r *Recorder) drop(n uint64) {
	if r.lost == 0 {
		r.since = time.Now()
	}
	r.lost += n
	r.dropped.Add(n)
}

// take removes the waiting events and returns them. gap is the time of the events that were dropped
// since the last call, or nil if none was. It takes r.mu.
func (r *Recorder) take() (all []*told, gap *Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.waiting {
		all = append(all, t)
	}
	if r.lost > 0 {
		gap = &Gap{Since: r.since, Before: time.Now(), Dropped: int64(r.lost)}
	}
	clear(r.waiting)
	r.events, r.lost = 0, 0
	return all, gap
}

// write stores the waiting events every linger and whenever batchSize wait, until ctx ends, and
// then once more. gap, which may be nil, is stored first. It also counts and stores the events that
// sub has dropped. Without events it stores at least every aliveEvery that the recorder runs. It
// takes r.mu, but not while it stores.
func (r *Recorder) write(ctx context.Context, sub events.Subscription, gap *Gap) {
	ticker := time.NewTicker(linger)
	defer ticker.Stop()
	counter, _ := capability.As[events.DropCounter](sub)
	var dropped uint64
	counted := time.Now() // when dropped events were counted
	var alive time.Time   // when r has written
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-r.full:
		case <-ctx.Done():
			ended = true
		}
		if counter != nil {
			now := time.Now()
			if n := counter.Dropped(); n > dropped {
				r.mu.Lock()
				r.drop(n - dropped)
				r.since = counted // they were dropped at some time since then
				r.mu.Unlock()
				dropped = n
			}
			counted = now
		}
		all, lost := r.take()
		if lost != nil {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "events were dropped; the history is incomplete", slog.Int64("events", lost.Dropped))
		}
		if gap == nil {
			gap = lost
		} else if lost != nil { // the gap of the start
			_ = r.store(ctx, nil, gap, counted) // only facts are refused
			gap = lost
		}
		if len(all) == 0 && gap == nil && time.Since(alive) < aliveEvery && !ended {
			continue
		}
		r.storeAll(ctx, all, gap)
		gap, alive = nil, time.Now()
	}
}

// storeAll writes events in transactions of up to batchSize tasks, and gap with the first of them.
// It logs the events that the store refuses for good. It blocks until all are written or ctx ends.
func (r *Recorder) storeAll(ctx context.Context, all []*told, gap *Gap) {
	before := r.refused.Load()
	var refusal error
	for first := true; first || len(all) > 0; first = false {
		n := min(len(all), batchSize)
		refusal = cmp.Or(r.store(ctx, all[:n], gap, time.Now()), refusal)
		all, gap = all[n:], nil
	}
	if refusal != nil {
		r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "events are skipped: the store of the history refuses them for good",
			slog.Uint64("events", r.refused.Load()-before), slog.Any("error", refusal))
	}
}

// store writes the facts of these tasks, gap and now in one transaction, and counts their events as
// written. It repeats that until it succeeds or ctx ends. After the end of ctx it tries once more,
// for up to lastWrite. If that fails it counts the events as dropped, logs that and returns nil.
//
// If the store refuses the facts for good, store writes the gap alone and each half of the tasks
// alone, and so on. It skips a single refused task, counts its events as refused and returns the
// error about it.
func (r *Recorder) store(ctx context.Context, all []*told, gap *Gap, now time.Time) (refusal error) {
	b, n := &Batch{Gap: gap, Now: now}, uint64(0)
	for _, t := range all {
		b.Facts = append(b.Facts, t.facts)
		n += uint64(t.events)
	}
	_, err := r.record(ctx, b)
	if err != nil && !b.refused(err) {
		last, end := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
		defer end()
		_, err = r.cfg.Store.Record(last, b)
	}
	switch {
	case err == nil:
		r.written.Add(n)
	case !b.refused(err):
		r.dropped.Add(n)
		r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the last events are not in the history", slog.Uint64("events", n), slog.Any("error", err))
	case gap != nil:
		return cmp.Or(r.store(ctx, nil, gap, now), r.store(ctx, all, nil, now))
	case len(all) > 1:
		half := len(all) / 2
		return cmp.Or(r.store(ctx, all[:half], nil, now), r.store(ctx, all[half:], nil, now))
	default:
		r.refused.Add(n)
		return fmt.Errorf("task %s: %w", all[0].facts.ID, err)
	}
	return nil
}

// refused reports whether err, which Store.Record returned for b, means that the store will never
// accept one of the facts of b.
func (b *Batch) refused(err error) bool {
	return len(b.Facts) > 0 && (errors.Is(err, ErrRefused) || errors.Is(err, ErrMalformed))
}

// record writes a batch and repeats that until it succeeds, b is refused or ctx ends. It logs the
// first failure. It returns the result of the last call of Store.Record.
func (r *Recorder) record(ctx context.Context, b *Batch) (time.Time, error) {
	gap := task.Backoff{Base: linger, Max: lastWrite}
	for attempt := 0; ; attempt++ {
		last, err := r.cfg.Store.Record(ctx, b)
		if err == nil || ctx.Err() != nil || b.refused(err) {
			return last, err
		}
		if attempt == 0 {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the history cannot be written; this is repeated, and events wait", slog.Any("error", err))
		}
		if !wake.Sleep(ctx, gap.Interval(attempt)) {
			return last, err
		}
	}
}

// sweep deletes the records and counts beyond MaxAge and MaxRecords, now and at intervals until ctx
// ends. It logs a failure and tries again.
func (r *Recorder) sweep(ctx context.Context) {
	most := max(0, r.cfg.MaxRecords)
	for pause := time.Duration(0); wake.Sleep(ctx, pause); {
		n, err := r.cfg.Store.Sweep(ctx, time.Now().Add(-r.cfg.MaxAge), most)
		if err != nil && ctx.Err() == nil {
			r.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "old records of the history cannot be deleted; this is repeated", slog.Any("error", err))
		}
		if pause = sweepEvery; n == MaxDeleted {
			pause = sweepPause
		}
	}
}
