package scheduletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// said collects the arguments of a handler in the order of its runs. Safe for concurrent use.
type said struct {
	mu   sync.Mutex
	list []string
}

// all returns a copy of the arguments so far. It takes r.mu.
func (r *said) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

var say = task.New[string, task.None]("say")

// sayer starts a listener with one worker in a goroutine. Its handler of the task say adds the
// argument to r, with r.mu held. If r is nil, the listener has no handler. stop ends the listener
// and waits for its end; it fails the test if Run returns an error.
func (w *world) sayer(s Store, r *said) (l *schedule.Listener, stop func()) {
	w.Helper()
	l, err := schedule.NewListener(schedule.ListenerConfig{
		Store: s, Name: named(s), Workers: 1, Poll: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: w.h.Patience,
		UnknownDelay: w.lease, Sweep: 50 * time.Millisecond, Grace: w.lease,
	})
	w.Must(err, "NewListener")
	if r != nil {
		w.Must(say.Handle(l, func(_ context.Context, what string) (task.None, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.list = append(r.list, what)
			return task.None{}, nil
		}), "Handle")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("Run: %v", err)
		}
	}
}

// schedule returns a Schedule on the store. It fails the test after an error.
func (w *world) schedule(s Store) *schedule.Schedule {
	w.Helper()
	made, err := schedule.New(schedule.Config{Store: s, Name: named(s)})
	w.Must(err, "schedule.New")
	return made
}

// say adds an entry that runs the task say with the argument what at the times of when. It fails
// the test after an error.
func (w *world) say(s *schedule.Schedule, when schedule.When, what string) schedule.Added {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	added, err := s.Add(ctx, when, say.Call(what))
	w.Must(err, "Add")
	return added
}

// listenerCases tests schedules and listeners together, on the store.
func listenerCases() []testCase {
	return []testCase{
		{
			// Promises: W5.
			Area: "listener", Name: "entries for now run in their order",
			Explain: "A schedule can be used as a queue: entries for Now run in the order in which they were added.",
			Run: func(w *world) {
				s, r := w.Open(), &said{}
				sched := w.schedule(s)
				var want []string
				for i := range 60 {
					want = append(want, fmt.Sprint(i))
					w.say(sched, schedule.Now(), want[i])
				}
				_, stop := w.sayer(w.Open(), r)
				w.Until("all of them to run", func() bool { return len(r.all()) >= len(want) })
				stop()
				if got := r.all(); !slices.Equal(got, want) {
					w.Errorf("the order is %v", got)
				}
			},
		},
		{
			Area: "listener", Name: "without the handler",
			Explain: "A listener without the handler leaves an entry to one that has it; until then the entry is postponed and never lost.",
			Run: func(w *world) {
				s, r := w.Open(), &said{}
				sched := w.schedule(s)
				without, stop := w.sayer(w.Open(), nil)
				defer stop()
				w.say(sched, schedule.Now(), "once")
				w.Until("it to be put off twice", func() bool { return without.Stats().PutOff >= 2 })
				_, stopWith := w.sayer(w.Open(), r)
				defer stopWith()
				w.Until("it to run", func() bool { return len(r.all()) == 1 })
				w.Until("it to go", func() bool {
					b := w.due(s, 1)
					return len(b.Ticks) == 0 && b.Next.IsZero()
				})
				if st := without.Stats(); st.Dropped > 0 || st.Ran > 0 {
					w.Errorf("the listener without the handler: %+v", st)
				}
			},
		},
		{
			Area: "listener", Name: "an entry in a zone",
			Explain: "Every store accepts entries whose times seven cron fields in UTC cannot express, and they run at their times.",
			Run: func(w *world) {
				s, r := w.Open(), &said{}
				sched := w.schedule(s)
				spec, err := when.Parse("CRON_TZ=Asia/Tokyo * * * * * * *")
				w.Must(err, "Parse")
				added := w.say(sched, schedule.BySpec(spec), "x")
				_, stop := w.sayer(w.Open(), r)
				w.Until("it to run twice", func() bool { return len(r.all()) >= 2 })
				stop()
				if !w.remove(s, added.ID) {
					w.Error("the entry is gone")
				}
			},
		},
		{
			Area: "listener", Name: "what an older program has dropped",
			Explain: "A listener finds a recurring entry that an older listener left without a due time, and the entry runs again.",
			Needs:   []need{needsRepair},
			Run: func(w *world) {
				s, r := w.Open(), &said{}
				sched := w.schedule(s)
				added := w.say(sched, schedule.ByCron("* * * * * * *"), "x")
				w.stray(s, added.ID)
				_, stop := w.sayer(w.Open(), r)
				w.Until("it to run", func() bool { return len(r.all()) > 0 })
				stop()
			},
		},
	}
}
