// Package steer follows the stored settings for a consumer: which queues and tasks are paused, how
// fast they may run, which breakers have tripped, and which queues a group serves. It decides; the
// consumer acts.
package steer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/settings"
)

// storeTimeout limits one change of the settings.
const storeTimeout = 10 * time.Second

// Config configures a [Steer]. Limiter, Group, Tasks and Queue may be zero.
type Config struct {
	Store   settings.Store
	Limiter limit.Limiter // nil: limits apply to this process
	Node    string
	Group   string
	Tasks   map[string]Breaker // by the name of the task
	// Queue returns the breaker of a queue. Its Of is 0 for a queue without one.
	Queue func(name string) Breaker
	// Changed is called by Run after each change, one call at a time. It may block.
	Changed func()
	Log     func(level slog.Level, msg string, attrs ...slog.Attr)
	// Go runs a function on a goroutine that the stop of the consumer waits for.
	Go func(func())
	// Logger gets the warnings of the limits.
	Logger *slog.Logger
}

// Steer holds the present settings. Make one with [New], call Load, and then Run. Safe for
// concurrent use.
type Steer struct {
	cfg            Config
	limits, probes middleware.Admit
	state          atomic.Pointer[settings.State]
	loaded         chan struct{} // closed when state is set for the first time
	again          wake.Signal   // the state has changed

	mu      sync.Mutex
	windows map[string]*window // of breakers, by key
	writing map[string]bool    // keys of breakers that are being stored
	touched map[aside]time.Time
	moved   map[aside]bool
	workers map[string]int // of the queues of the group; only for FollowGroup
}

// New returns a Steer. Without a Limiter, limits apply to this process. It does no I/O and starts
// nothing. Returns the errors of [limit.Admit].
func New(c Config) (*Steer, error) {
	if c.Limiter == nil {
		c.Limiter = limit.NewMemory()
	}
	s := &Steer{
		cfg: c, loaded: make(chan struct{}), again: wake.New(), windows: make(map[string]*window), writing: make(map[string]bool),
		touched: make(map[aside]time.Time), moved: make(map[aside]bool), workers: make(map[string]int),
	}
	s.state.Store(&settings.State{})
	var err error
	if s.limits, err = limit.Admit(limit.Config{Limiter: c.Limiter, Permits: s.permits, Logger: c.Logger}); err != nil {
		return nil, err
	}
	// a probe is alone in this process, whatever others do
	s.probes, err = limit.Admit(limit.Config{Limiter: limit.NewMemory(), Permits: s.probesOf, Logger: c.Logger})
	return s, err
}

// Load starts a goroutine that follows the settings until ctx ends, and blocks until it has read
// them for the first time. Returns the cause of ctx if that ends first. Call stop at the end, after
// an error as well: it ends the goroutine and waits for it. That the settings cannot be read is
// logged.
func (s *Steer) Load(ctx context.Context) (stop func(), err error) {
	following, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		settings.Follow(following, s.cfg.Store, s.apply, func(err error) {
			s.cfg.Log(slog.LevelWarn, "the settings cannot be read; the last known ones apply", slog.Any("error", err))
		})
	}()
	stop = func() {
		cancel()
		<-ended
	}
	select {
	case <-s.loaded:
		return stop, nil
	case <-ctx.Done():
		return stop, context.Cause(ctx)
	}
}

// apply makes values the present settings and wakes Run. The first call ends the wait of Load.
// Values that cannot be read are ignored and logged, at each call.
func (s *Steer) apply(values []settings.Value) {
	state := settings.Read(values)
	for _, key := range state.Bad {
		s.cfg.Log(slog.LevelWarn, "a setting cannot be read and is ignored", slog.String("key", key))
	}
	s.state.Store(&state)
	select {
	case <-s.loaded:
	default:
		close(s.loaded)
	}
	s.again.Notify()
}

// Run calls touchMoved and then Config.Changed after each change of the settings, and when a pause
// ends. It blocks until ctx ends. Call it after Load.
func (s *Steer) Run(ctx context.Context) {
	for {
		if !s.again.Wait(ctx, s.untilNext(time.Now())) {
			return
		}
		s.touchMoved(ctx)
		s.cfg.Changed()
	}
}

// Wake makes Run call Config.Changed soon. If s is nil, it does nothing.
func (s *Steer) Wake() {
	if s != nil {
		s.again.Notify()
	}
}

// maxWait is the longest time without a call of Config.Changed.
const maxWait = time.Hour

// untilNext returns the time from now until the next pause of a queue, a task or a breaker ends, at
// most maxWait.
func (s *Steer) untilNext(now time.Time) time.Duration {
	next := now.Add(maxWait)
	sooner := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}
	state := s.state.Load()
	for _, p := range state.QueuePauses {
		sooner(p.Until)
	}
	for _, p := range state.TaskPauses {
		sooner(p.Until)
	}
	for _, b := range state.QueueBreakers {
		sooner(b.Until)
	}
	for _, b := range state.TaskBreakers {
		sooner(b.Until)
	}
	return next.Sub(now) + time.Millisecond // not before the end by another clock reading
}

// QueuePaused reports whether a stored pause of the queue lasts now, and whether a pause of its
// breaker does.
func (s *Steer) QueuePaused(name string) (stored, tripped bool) {
	state, now := s.state.Load(), time.Now()
	p, set := state.QueuePauses[name]
	b, broken := state.QueueBreakers[name]
	return set && p.Active(now), broken && now.Before(b.Until)
}

// TaskPaused reports whether tasks with this name are paused now, by a stored pause or by a
// breaker.
func (s *Steer) TaskPaused(name string) bool {
	state := s.state.Load()
	if len(state.TaskPauses) == 0 && len(state.TaskBreakers) == 0 {
		return false
	}
	_, paused := pausedSince(state, name, time.Now())
	return paused
}

// pausedSince returns when the pause of a task was stored. paused reports whether it lasts at now;
// if not, ignore since.
func pausedSince(state *settings.State, name string, now time.Time) (since time.Time, paused bool) {
	if p, set := state.TaskPauses[name]; set && p.Active(now) {
		return p.At, true
	}
	b, set := state.TaskBreakers[name]
	return b.At, set && now.Before(b.Until)
}

// MaxWorkers returns the largest number of workers that a queue may have in this process: the
// stored limit of its concurrency; 0: no limit. It is 1 from when the breaker of the queue trips
// until a success resets it.
func (s *Steer) MaxWorkers(queue string) int {
	state := s.state.Load()
	if _, broken := state.QueueBreakers[queue]; broken {
		return 1
	}
	l := state.QueueLimits[queue]
	return max(l.Concurrency, 0)
}
