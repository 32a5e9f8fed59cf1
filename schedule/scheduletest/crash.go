package scheduletest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// errDead is returned by the store of a crashed process. A listener does not retry after it.
var errDead = fmt.Errorf("scheduletest: this process is dead: %w", schedule.ErrClosed)

// crashingStore is a store of a process that crashes right before or right after one of its calls.
// All later calls fail.
type crashingStore struct {
	schedule.Store
	die func()

	mu   sync.Mutex
	left int // points until the crash
	dead bool
	name string // of the point of the crash
}

// Unwrap returns the store, for its optional interfaces.
func (m *crashingStore) Unwrap() any { return m.Store }

// point counts one point, or crashes there and returns errDead. At the crash it sets m.name and
// calls m.die, with m.mu held. After it, each call returns errDead. It takes m.mu.
func (m *crashingStore) point(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead && m.left == 0 {
		m.dead, m.name = true, name
		m.die()
	}
	if m.dead {
		return errDead
	}
	m.left--
	return nil
}

// died returns the name of the point of the crash, and whether the store has crashed. It takes
// m.mu.
func (m *crashingStore) died() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name, m.dead
}

// orCrash makes a call with a point before and a point after it. It returns errDead if the store
// crashed at one of them, also when the call was made.
func orCrash[T any](m *crashingStore, name string, call func() (T, error)) (T, error) {
	var none T
	if err := m.point("before " + name); err != nil {
		return none, err
	}
	v, err := call()
	if dead := m.point("after " + name); dead != nil {
		return none, dead
	}
	return v, err
}

// Due calls the store, with a point before and after the call.
func (m *crashingStore) Due(ctx context.Context, most int) (schedule.Batch, error) {
	return orCrash(m, "Due", func() (schedule.Batch, error) { return m.Store.Due(ctx, most) })
}

// Claim calls the store, with a point before and after the call.
func (m *crashingStore) Claim(ctx context.Context, owner string, lease time.Duration, claims []schedule.Claim) ([]bool, error) {
	return orCrash(m, "Claim", func() ([]bool, error) { return m.Store.Claim(ctx, owner, lease, claims) })
}

// Renew calls the store, with a point before and after the call.
func (m *crashingStore) Renew(ctx context.Context, owner string, lease time.Duration, ticks []schedule.Tick) ([]bool, error) {
	return orCrash(m, "Renew", func() ([]bool, error) { return m.Store.Renew(ctx, owner, lease, ticks) })
}

// Done calls the store, with a point before and after the call.
func (m *crashingStore) Done(ctx context.Context, owner string, done []schedule.Finish) ([]bool, error) {
	return orCrash(m, "Done", func() ([]bool, error) { return m.Store.Done(ctx, owner, done) })
}

// ran collects the task ids that were run, with the names of the listeners.
type ran struct {
	mu   sync.Mutex
	runs map[task.ID][]string
}

// of returns the names of the listeners that ran a task, in the order of the runs. It takes r.mu.
func (r *ran) of(id task.ID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id]
}

// listen starts a listener on s in a goroutine. The parameter "who" is its node id. Its handler
// adds its runs to r, with r.mu held, unless its process has crashed. A crash of s ends the
// listener. stop ends it and waits for its end; it fails the test if Run returns an error.
func (w *world) listen(s schedule.Store, who string, lease time.Duration, r *ran) (stop func()) {
	w.Helper()
	dead := func() bool { return false }
	if m, ok := s.(*crashingStore); ok {
		dead = func() bool { _, is := m.died(); return is }
	}
	l, err := schedule.NewListener(schedule.ListenerConfig{
		Store: s, Name: w.name, NodeID: who, Lease: lease, Workers: 2, Poll: 20 * time.Millisecond, Sweep: -1,
		ShutdownTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	w.Must(err, "NewListener")
	err = task.New[int, task.None]("suite").Handle(l, func(ctx context.Context, _ int) (task.None, error) {
		if q, ok := task.FromContext(ctx); ok && !dead() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.runs[q.ID] = append(r.runs[q.ID], who)
		}
		return task.None{}, nil
	})
	w.Must(err, "Handle")
	ctx, cancel := context.WithCancel(context.Background())
	if m, ok := s.(*crashingStore); ok {
		m.die = cancel
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return func() {
		cancel()
		w.Must(<-ended, "Run")
	}
}

// crashCases crashes a listener at each point that it reaches, one after the other.
func crashCases() []testCase {
	return []testCase{
		{
			Area: "crash", Name: "a listener that dies anywhere",
			Explain: "A listener that is killed before or after any call loses no tick: another one runs its ticks with the same task ids, and recurring entries continue.",
			Run: func(w *world) {
				for points := 0; ; points++ {
					if !w.dieAt(points) {
						if points < 6 {
							w.Errorf("there were only %d points to die at", points)
						}
						return
					}
				}
			},
		},
	}
}

// dieAt crashes a listener at the given point and lets another one finish the work. It fails the
// test unless each tick ran once, or twice on two listeners if the first crashed. It removes its
// entries and reports whether the first listener reached that point.
func (w *world) dieAt(points int) bool {
	w.Helper()
	s := w.Open()
	w.name = named(s)
	now := w.now(s)
	ids := map[task.ID]bool{}
	var once []schedule.Entry
	for range 3 {
		e := w.entry(now.Add(-time.Second))
		e.Payload = fmt.Appendf(nil, `{"args":[%d],"cron":"%s","job":"suite"}`, w.entries.Add(1), now.Add(-time.Second).Format("2006 1 2 * 15 4 5"))
		e.ID = schedule.ID(e.Payload)
		ids[schedule.TickID(w.name, e.ID, e.Next)] = true
		once = append(once, e)
	}
	again := w.entry(now.Add(-time.Second))
	ids[schedule.TickID(w.name, again.ID, again.Next)] = true
	w.add(s, append(once, again)...)

	r := &ran{runs: map[task.ID][]string{}}
	first := &crashingStore{Store: w.Open(), left: points, die: func() {}}
	stop := w.listen(first, "first", 300*time.Millisecond, r)
	w.Until("the first listener to die or to end its work", func() bool {
		_, dead := first.died()
		return dead || w.idle(s)
	})
	stop()
	at, dead := first.died()
	stop = w.listen(w.Open(), "second", long, r)
	w.Until("the second listener to end the work of one that died "+at, func() bool { return w.idle(s) })
	stop()

	for id := range ids {
		if runs := r.of(id); len(runs) == 0 || len(runs) > 2 || len(runs) == 2 && (!dead || runs[0] == runs[1]) {
			w.Errorf("a listener died %q: a tick was run by %v", at, runs)
		}
	}
	for id := range r.runs {
		if !ids[id] {
			w.Errorf("a listener died %q: task %s is of no tick", at, id)
		}
	}
	for _, e := range once {
		w.wantGone(s, e, "a listener died %q: a one-shot after its run", at)
	}
	if b := w.due(s, 1); len(b.Ticks) > 0 || b.Next.IsZero() {
		w.Errorf("a listener died %q: the recurring entry has no next time", at)
	}
	w.wantExists(s, again, "a listener died %q: a recurring entry", at)
	w.remove(s, again.ID)
	return dead
}

// idle reports whether no tick is due or claimed, so that only the recurring entry's own due time
// is left.
func (w *world) idle(s Store) bool {
	w.Helper()
	b := w.due(s, 10)
	if len(b.Ticks) > 0 || b.Next.IsZero() {
		return false
	}
	// midnight is the entry's due time, not the end of a lease
	return b.Next.Equal(b.Next.Truncate(24 * time.Hour))
}

// named returns the name of the store's schedule, from which task ids are derived, or "suite" for a
// store without a name.
func named(s Store) string {
	if n, ok := capability.As[schedule.Named](s); ok {
		return n.Name()
	}
	return "suite"
}
