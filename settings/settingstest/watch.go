package settingstest

import (
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/settings"
)

// isConflict reports whether err is [settings.ErrConflict].
func isConflict(err error) bool { return errors.Is(err, settings.ErrConflict) }

// watchCases returns the cases of Watch and Follow.
func watchCases() []testCase {
	return []testCase{
		{
			Area: "watch", Name: "changes",
			Explain: "A watch is called after each change of any process, of its own too, and not after stop.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				calls := w.watch(b)
				stopped := w.watch(a)
				stop := a.Watch(func() {})
				stop()
				stop()
				w.put(a, "a", "one", 0)
				w.Until("the own change", func() bool { return stopped.Load() > 0 })
				w.Until("the change of another process", func() bool { return calls.Load() > 0 && w.sees(b, "a", "one") > 0 })
				revision := w.sees(b, "a", "one")
				calls.Store(0)
				w.remove(a, "a", revision)
				w.Until("the deletion", func() bool { return calls.Load() > 0 })
				w.sees(b, "a", "")
			},
		},
		{
			Area: "watch", Name: "follow",
			Explain: "Follow applies the present values, and soon each change.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				w.put(a, "queue/q/pause", "{}", 0)
				ctx, cancel := context.WithCancel(context.Background())
				states := make(chan settings.State, 100)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					settings.Follow(ctx, b, func(v []settings.Value) { states <- settings.Read(v) }, func(err error) { _ = w.Clean(err) })
				}()
				defer func() {
					cancel()
					suite.Ends(w.World, ended, "Follow")
				}()
				if s := suite.Ends(w.World, states, "the first state"); len(s.QueuePauses) != 1 {
					w.Fatalf("the first state has %d pauses", len(s.QueuePauses))
				}
				w.put(a, "queue/r/pause", "{}", 0)
				for len(suite.Ends(w.World, states, "the next state").QueuePauses) != 2 {
				}
			},
		},
	}
}

// calls returns a function for each method of s that returns an error, by the name of the method.
// Each function calls the method once and returns its error.
func calls(s settings.Store) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Get":    func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"Put":    func(ctx context.Context) error { _, err := s.Put(ctx, "a", nil, 0); return err },
		"Delete": func(ctx context.Context) error { return s.Delete(ctx, "a", 1) },
		"List":   func(ctx context.Context) error { _, err := s.List(ctx, ""); return err },
	}
}

// closeCases returns the cases of Close and of contexts that have ended.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a closed store",
			Explain: "After Close all calls return ErrUnavailable; Close is idempotent and does not affect other stores.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				w.put(s, "b", "kept", 0)
				w.sees(other, "b", "kept")
				w.watch(s)
				w.Close(s)
				w.Close(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, call := range calls(s) {
					w.WantIs(call(ctx), settings.ErrUnavailable, "%s", name)
				}
				s.Watch(func() {})()
				w.sees(other, "b", "kept")
				w.sees(w.Open(), "b", "kept")
			},
		},
		{
			Area: "close", Name: "a context that has ended",
			Explain: "A ctx bounds every wait: with an ended ctx each call returns soon, with ErrUnavailable.",
			Run: func(w *world) {
				s := w.Open()
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				for name, call := range calls(s) {
					ended := make(chan error, 1)
					go func() { ended <- call(ctx) }()
					w.WantIs(suite.Ends(w.World, ended, name+" with an ended context"), settings.ErrUnavailable, "%s with an ended context", name)
				}
			},
		},
	}
}

// faultCases returns the cases of lost connections and restarts of the server.
func faultCases() []testCase {
	return []testCase{
		{
			Area: "fault", Name: "a cut connection", Needs: []need{needsSever},
			Explain: "After a lost connection calls continue, and a watch is called again and finds the newest value.",
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				calls := w.watch(b)
				revision := w.put(a, "a", "one", 0)
				w.Until("the first call of the watch", func() bool { return calls.Load() > 0 })
				w.sees(b, "a", "one")
				calls.Store(0)
				w.h.Sever(w.TB)
				w.put(a, "a", "two", revision)
				w.Until("the value after the cut", func() bool {
					got, _ := w.get(b, "a")
					return calls.Load() > 0 && got == "two"
				})
			},
		},
		{
			Area: "fault", Name: "changes while a watch is cut off", Needs: []need{needsDown},
			Explain: "A watch that was cut off is called after it is back, and finds the newest value.",
			Run: func(w *world) {
				s := w.Open()
				calls := w.watch(s)
				w.put(s, "a", "one", 0)
				w.Until("the first call of the watch", func() bool { return calls.Load() > 0 })
				up := w.h.Down(w.TB)
				ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				_, err := s.Put(ctx, "b", []byte("down"), 0)
				w.WantIs(err, settings.ErrUnavailable, "Put without a server")
				calls.Store(0)
				up()
				w.Until("a call of the watch", func() bool { return calls.Load() > 0 })
				w.sees(s, "a", "one")
				_, revision := w.get(s, "a")
				w.put(s, "a", "two", revision)
				w.sees(s, "a", "two")
			},
		},
		{
			Area: "fault", Name: "a restart", Needs: []need{needsRestart, needsDurable},
			Explain: "Values and revisions survive a restart of the server, and watches continue.",
			Run: func(w *world) {
				s := w.Open()
				calls := w.watch(s)
				revision := w.put(s, "a", "one", 0)
				gone := w.put(s, "b", "two", 0)
				w.remove(s, "b", gone)
				w.h.Restart(w.TB)
				other := w.Open()
				w.wantList(other, "", [2]string{"a", "one"})
				calls.Store(0)
				w.put(other, "a", "three", revision)
				w.Until("a call of the watch", func() bool { return calls.Load() > 0 })
				w.sees(s, "a", "three")
			},
		},
	}
}
