package scheduletest

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
)

// calls returns the methods of a store and of its interfaces Lister, Pauser and Changer, by name.
// Each is a call about the entry e that returns only the error.
func calls(s Store, e schedule.Entry) map[string]func(ctx context.Context) error {
	k := schedule.Tick{Entry: e, Due: e.Next}
	m := map[string]func(ctx context.Context) error{
		"Add": func(ctx context.Context) error { _, err := s.Add(ctx, []schedule.Entry{e}); return err },
		"Due": func(ctx context.Context) error { _, err := s.Due(ctx, 1); return err },
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, "a", long, []schedule.Claim{{Tick: k}})
			return err
		},
		"Renew": func(ctx context.Context) error { _, err := s.Renew(ctx, "a", long, []schedule.Tick{k}); return err },
		"Done":  func(ctx context.Context) error { _, err := s.Done(ctx, "a", []schedule.Finish{{Tick: k}}); return err },
		"Remove": func(ctx context.Context) error {
			_, err := s.Remove(ctx, e.ID)
			return err
		},
	}
	if l, ok := capability.As[schedule.Lister](s); ok {
		m["Get"] = func(ctx context.Context) error { _, err := l.Get(ctx, e.ID); return err }
		m["List"] = func(ctx context.Context) error { _, _, err := l.List(ctx, "", 10); return err }
	}
	if p, ok := capability.As[schedule.Pauser](s); ok {
		m["Pause"] = func(ctx context.Context) error { return p.Pause(ctx, e.ID) }
		m["Resume"] = func(ctx context.Context) error { return p.Resume(ctx, e.ID, e.Next) }
	}
	if c, ok := capability.As[schedule.Changer](s); ok {
		m["Change"] = func(ctx context.Context) error {
			_, err := c.Change(ctx, schedule.Change{Group: "g", Entries: []schedule.Entry{e}})
			return err
		}
	}
	return m
}

// closeCases tests Close and contexts that have ended.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a closed store",
			Explain: "After Close all calls return ErrClosed; Close is idempotent and does not affect other stores.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				e := w.overdue(s)
				w.Close(s)
				w.Close(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, call := range calls(s, e) {
					w.WantIs(call(ctx), schedule.ErrClosed, "%s", name)
				}
				w.wantOne(other, e.ID)
				w.wantOne(w.Open(), e.ID)
			},
		},
		{
			Area: "close", Name: "a context that has ended",
			Explain: "A ctx bounds every wait: with an ended ctx each call returns soon, with an error.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				for name, call := range calls(s, e) {
					ended := make(chan error, 1)
					go func() { ended <- call(ctx) }()
					if suite.Ends(w.World, ended, name+" with an ended context") == nil {
						w.Errorf("%s with an ended context reported success", name)
					}
				}
			},
		},
	}
}

// faultCases tests lost connections, a restart of the server, and no server.
func faultCases() []testCase {
	return []testCase{
		{
			// Promises: W39.
			Area: "fault", Name: "a severed connection",
			Explain: "A store survives lost connections: a call fails with ErrUnavailable or waits until its ctx ends, and can be repeated.",
			Needs:   []need{needsSever},
			Run: func(w *world) {
				s := w.Open()
				for range 3 {
					e := w.overdue(s)
					w.h.Sever(w.TB, s)
					var k schedule.Tick
					w.retry("Due", func(ctx context.Context) error {
						b, err := s.Due(ctx, 10)
						if err == nil && len(b.Ticks) != 1 {
							w.Fatalf("%d are due", len(b.Ticks))
						}
						if err == nil {
							k = b.Ticks[0]
						}
						return err
					})
					w.h.Sever(w.TB, s)
					w.retry("Claim", func(ctx context.Context) error {
						won, err := s.Claim(ctx, "a", long, []schedule.Claim{{Tick: k}})
						if err == nil && !won[0] {
							w.Fatal("a claim that was asked for again is lost")
						}
						return err
					})
					w.h.Sever(w.TB, s)
					w.retry("Done", func(ctx context.Context) error {
						_, err := s.Done(ctx, "a", []schedule.Finish{{Tick: k, Remove: true}})
						return err
					})
					w.wantGone(s, e, "a one-shot after its run")
				}
			},
		},
		{
			// Promises: W38.
			Area: "fault", Name: "a restart",
			Explain: "After a restart of the server a durable store still has all that it confirmed: entries, claims, pauses, states.",
			Needs:   []need{needsRestart, needsDurable},
			Run: func(w *world) {
				s := w.Open()
				waiting, run := w.entry(w.now(s).Add(time.Hour)), w.overdue(s)
				w.add(s, waiting)
				k := w.wantOne(s, run.ID)
				w.claim(s, "a", long, k, time.Time{})
				carried := w.overdue(s)
				c := w.wantOne(s, carried.ID)
				w.claim(s, "a", long, c, w.now(s))
				w.finish(s, "a", schedule.Finish{Tick: c, State: []byte("x")})
				grouped := w.entry(w.now(s).Add(time.Hour))
				if w.h.Promises.Change {
					w.change(s, syncTo("g", 2, grouped), schedule.EntryAdded)
				}
				w.h.Restart(w.TB)
				w.retry("Due", func(ctx context.Context) error { _, err := s.Due(ctx, 1); return err })
				if again := w.waitDue(w.Open(), carried.ID); string(again.State) != "x" {
					w.Errorf("it carries %q", again.State)
				}
				if !w.renew(s, "a", long, k)[0] {
					w.Error("a claim was forgotten")
				}
				if w.h.Promises.Change {
					if got := w.tryChange(s, syncTo("g", 1)); got.Revision != 2 {
						w.Errorf("the revision of a group is %d, want 2", got.Revision)
					}
					w.wantExists(s, grouped, "an entry of a group from before the restart")
				}
				w.wantExists(s, waiting, "an entry from before the restart")
				w.wantExists(s, run, "a claimed entry from before the restart")
			},
		},
		{
			// Promises: W39.
			Area: "fault", Name: "no server",
			Explain: "Without a server a call returns ErrUnavailable or the error of its ctx; when the server is back, the same store works again.",
			Needs:   []need{needsDown},
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				up := w.h.Down(w.TB)
				for name, call := range calls(s, e) {
					ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
					ended := make(chan error, 1)
					go func() { ended <- call(ctx) }()
					err := w.Clean(suite.Ends(w.World, ended, name+" without a server"))
					cancel()
					if !errors.Is(err, schedule.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
						w.Errorf("%s without a server: got error %v, want ErrUnavailable or the ctx's", name, err)
					}
				}
				up()
				w.retry("Due", func(ctx context.Context) error { _, err := s.Due(ctx, 1); return err })
			},
		},
	}
}

// retry repeats a call until it succeeds, and fails the test when the patience of the world ends.
// The call may fail only with ErrUnavailable or the end of its context, a quarter of the patience.
func (w *world) retry(name string, call func(ctx context.Context) error) {
	w.Helper()
	w.Until(name+" after a fault", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), w.Patience/4)
		defer cancel()
		err := call(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			w.WantIs(err, schedule.ErrUnavailable, "%s after a fault", name)
		}
		return err == nil
	})
}
