package jobstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// calls returns a call of each method of s that can fail, by the name of the method. Update, Single
// and View read the job id, which must exist.
func calls(s jobs.Store, id jobs.ID) map[string]func(ctx context.Context) error {
	inside := func(ctx context.Context, tx jobstore.Tx) error {
		if _, err := tx.Now(ctx); err != nil {
			return err
		}
		_, err := tx.Get(ctx, id)
		return err
	}
	return map[string]func(ctx context.Context) error{
		"Update": func(ctx context.Context) error { return s.Update(ctx, inside) },
		"Single": func(ctx context.Context) error { return s.Single(ctx, inside) },
		"View":   func(ctx context.Context) error { return s.View(ctx, inside) },
		"Coming": func(ctx context.Context) error { _, err := s.Coming(ctx, time.Time{}, 1); return err },
	}
}

// closeCases returns the cases about Store.Close and about contexts that have ended.
func closeCases() []testCase {
	return []testCase{
		{
			Area: "close", Name: "a closed store",
			Explain: "After Close every call returns ErrClosed. Close is idempotent and does not affect other stores.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				j := w.add(s, "a")
				w.Close(s)
				w.Close(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, call := range calls(s, j.ID) {
					w.WantIs(call(ctx), jobs.ErrClosed, "%s", name)
				}
				w.wantSame(w.get(other, j.ID), j, "in the other store")
				w.wantSame(w.get(w.Open(), j.ID), j, "in a new store")
			},
		},
		{
			Area: "close", Name: "never used",
			Explain: "An unused store can be closed, also from several goroutines at once.",
			Run: func(w *world) {
				s := w.Open()
				all(4, func(int) { w.Close(s) })
			},
		},
		{
			Area: "close", Name: "waits",
			Explain: "Close waits for running calls, which end normally. If its ctx ends first, it returns the error of ctx.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "a")
				began, release := make(chan struct{}, 1), make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					ctx, cancel := w.Ctx()
					defer cancel()
					ended <- s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						select {
						case began <- struct{}{}:
						default:
						}
						select {
						case <-release:
						case <-ctx.Done():
						}
						j := template
						return tx.Save(ctx, &j)
					})
				}()
				suite.Ends(w.World, began, "a transaction")
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				w.WantIs(s.Close(ctx), context.DeadlineExceeded, "Close while a transaction is under way, until ctx ends")
				closed := make(chan error, 1)
				go func() {
					ctx, cancel := w.Ctx()
					defer cancel()
					closed <- s.Close(ctx)
				}()
				close(release)
				w.Must(suite.Ends(w.World, ended, "the transaction"), "the transaction")
				w.Must(suite.Ends(w.World, closed, "Close"), "Close")
				if n := len(w.find(w.Open(), Query{})); n != 1 {
					w.Errorf("%d jobs are there, not the one that was saved during Close", n)
				}
			},
		},
		{
			Area: "close", Name: "a context that has ended",
			Explain: "A ctx limits every wait: with an ended ctx no call blocks, and none reports success.",
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a")
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				for name, call := range calls(s, j.ID) {
					ended := make(chan error, 1)
					go func() { ended <- call(ctx) }()
					w.WantIs(suite.Ends(w.World, ended, name+" with an ended context"), jobs.ErrUnavailable, "%s with an ended context", name)
				}
			},
		},
	}
}

// through repeats call until it succeeds. It fails the case at once if call returns an error other
// than ErrUnavailable, or if World.Patience ends first. what names the call in the failure.
func (w *world) through(what string, call func(ctx context.Context) error) {
	w.Helper()
	w.Until(what+" succeeds", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), w.Patience)
		defer cancel()
		err := w.Clean(call(ctx))
		if err != nil && !errors.Is(err, jobs.ErrUnavailable) {
			w.Fatalf("%s: %v, not ErrUnavailable", what, err)
		}
		return err == nil
	})
}

// faultCases returns the cases about lost connections and servers that restart or are unreachable.
func faultCases() []testCase {
	return []testCase{
		{
			Area: "fault", Name: "a severed connection",
			Explain: "A store survives lost connections: a call returns ErrUnavailable or waits within its ctx, and can be repeated.",
			Needs:   []need{needsSever},
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a")
				for i := range 3 {
					for name, call := range calls(s, j.ID) {
						w.h.Sever(w.TB, s)
						w.through(name, call)
					}
					w.h.Sever(w.TB, s)
					w.through("a change", func(ctx context.Context) error {
						return s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
							return edit(ctx, tx, j.ID, func(j *jobs.Row) { j.Run = int64(i) })
						})
					})
					if got := w.get(s, j.ID).Run; got != int64(i) {
						w.Errorf("change %d is kept as %d", i, got)
					}
				}
			},
		},
		{
			Area: "fault", Name: "severed within",
			Explain: "If a connection is lost within a transaction, all of its changes are stored or none. The call returns ErrUnavailable, or nil if all are stored.",
			Needs:   []need{needsSever},
			Run: func(w *world) {
				s := w.Open()
				w.add(s, "before")
				for i := range 5 {
					name := fmt.Sprint("half-", i)
					template := w.job(s, name)
					ctx, cancel := w.Ctx()
					first := true
					err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						one, two := template, template
						if err := tx.Save(ctx, &one); err != nil {
							return err
						}
						if first {
							first = false
							w.h.Sever(w.TB, s)
						}
						return tx.Save(ctx, &two)
					})
					cancel()
					if w.Clean(err) != nil && !errors.Is(err, jobs.ErrUnavailable) {
						w.Errorf("a lost connection is %v", err)
					}
					n := -1
					w.through("a look at what is there", func(ctx context.Context) error {
						return s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
							found, err := tx.Named(ctx, name, jobstore.Page{})
							n = len(found)
							return err
						})
					})
					if n != 0 && n != 2 || err == nil && n != 2 {
						w.Errorf("after %v there are %d of 2 jobs", err, n)
					}
				}
			},
		},
		{
			Area: "fault", Name: "a restart",
			Explain: "A change that Update has confirmed survives the end of the server, and no id is used again.",
			Needs:   []need{needsDurable, needsRestart},
			Run: func(w *world) {
				s := w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "b"), w.job(s, "c"))
				w.edit(s, list[0].ID, func(j *jobs.Row) { j.State, j.Token, j.Due, j.Data = jobs.Running, 1, time.Time{}, []byte(`{"n":1}`) })
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, list[2].ID) })
				want := w.find(s, Query{})
				w.h.Restart(w.TB)
				again := w.Open()
				var got []jobs.Row
				w.through("a look at what is there", func(ctx context.Context) error {
					return again.View(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
						got, err = tx.All(ctx, jobstore.Page{})
						return err
					})
				})
				w.wantIDs(got, want, "after the restart")
				for i := range min(len(got), len(want)) {
					w.wantSame(got[i], want[i], "after the restart, job %d", i)
				}
				if j := w.add(again, "d"); j.ID <= list[2].ID {
					w.Errorf("the id after %d is %d, when its job was deleted", list[2].ID, j.ID)
				}
				w.through("the store that was open", func(ctx context.Context) error {
					return s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						_, err := tx.Get(ctx, list[0].ID)
						return err
					})
				})
			},
		},
		{
			Area: "fault", Name: "a server that is away",
			Explain: "While the server is unreachable, calls end with their ctx and return ErrUnavailable. Afterwards the same store works.",
			Needs:   []need{needsDown},
			Run: func(w *world) {
				s := w.Open()
				j := w.add(s, "a")
				up := w.h.Down(w.TB)
				for name, call := range calls(s, j.ID) {
					ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
					ended := make(chan error, 1)
					go func() { ended <- call(ctx) }()
					w.WantIs(suite.Ends(w.World, ended, name+" without a server"), jobs.ErrUnavailable, "%s without a server", name)
					cancel()
				}
				up()
				for name, call := range calls(s, j.ID) {
					w.through(name, call)
				}
			},
		},
		{
			Area: "fault", Name: "wake-ups after a severed connection",
			Explain: "A watcher is notified again after a lost connection is restored.",
			Needs:   []need{needsSever},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				var e ear
				defer s.Watch(e.wake)()
				w.Until("a wake-up", func() bool {
					w.add(other, "before")
					return w.soon(func() bool { return e.heard("before") })
				})
				w.h.Sever(w.TB, s)
				var after ear
				defer s.Watch(after.wake)()
				w.Until("a wake-up after the cut", func() bool {
					w.add(other, "after")
					return w.soon(func() bool { return after.heard("after") })
				})
			},
		},
	}
}
