package jobstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// lockCases returns the cases about Tx.Lock.
func lockCases() []testCase {
	return []testCase{
		{
			Area: "lock", Name: "excludes",
			Explain: "Lock lets only one transaction of all processes hold a name, until it ends. It is for things without a row.",
			Run: func(w *world) {
				stores := []jobs.Store{w.Open(), w.Open(), w.Open()}
				template := w.job(stores[0], "unique")
				var inside atomic.Int32
				all(9, func(i int) {
					w.try(stores[i%3], func(ctx context.Context, tx jobstore.Tx) error {
						if err := tx.Lock(ctx, "unique/1"); err != nil {
							return err
						}
						if n := inside.Add(1); n > 1 {
							w.Errorf("%d transactions hold one name", n)
						}
						defer inside.Add(-1)
						found, err := tx.Named(ctx, "unique", jobstore.Page{})
						if err != nil || len(found) > 0 {
							return err
						}
						j := template
						return tx.Save(ctx, &j)
					})
				})
				if n := len(w.find(stores[0], Query{Name: "unique"})); n != 1 {
					w.Errorf("%d transactions found nothing under the lock and added a job", n)
				}
			},
		},
		{
			Area: "lock", Name: "until the end",
			Explain: "A lock ends with its transaction, also with one that fails. Another transaction waits for it until its ctx ends. A name may be locked twice.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				held, release := make(chan struct{}, 1), make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					ctx, cancel := w.Ctx()
					defer cancel()
					ended <- s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						if err := errors.Join(tx.Lock(ctx, "a", "b"), tx.Lock(ctx, "b", "a", "a")); err != nil {
							return err
						}
						select {
						case held <- struct{}{}:
						default:
						}
						select {
						case <-release:
						case <-ctx.Done():
						}
						return errCase
					})
				}()
				suite.Ends(w.World, held, "a lock")
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer cancel()
				err := other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, "b") })
				w.WantIs(err, jobs.ErrUnavailable, "Lock of what is held, until ctx ends")
				close(release)
				if err := suite.Ends(w.World, ended, "the holder"); !errors.Is(err, errCase) {
					w.Errorf("the holder ended with %v", err)
				}
				w.update(other, func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, "b", "a") })
			},
		},
		{
			Area: "lock", Name: "many names at once",
			Explain: "The names of one call are locked in a fixed order, so that two transactions with different orders do not deadlock.",
			Run: func(w *world) {
				stores := []jobs.Store{w.Open(), w.Open()}
				all(8, func(i int) {
					names := []string{"a", "b", "c"}
					if i%2 == 1 {
						names = []string{"c", "b", "a"}
					}
					for range 5 {
						w.try(stores[i%2], func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, names...) })
					}
				})
			},
		},
		{
			Area: "lock", Name: "very many names",
			Explain: "A transaction may lock very many names of a kind. No other transaction holds one of them meanwhile, alone or among many.",
			Run: func(w *world) {
				stores := []jobs.Store{w.Open(), w.Open()}
				names := make([]string, 2000)
				for i := range names {
					names[i] = fmt.Sprint("many ", i)
				}
				var inside atomic.Int32
				all(6, func(i int) {
					some := names
					switch i % 3 {
					case 1:
						some = slices.Clone(names[500:])
						slices.Reverse(some)
					case 2:
						some = names[1000+i : 1001+i]
					}
					for range 3 {
						w.try(stores[i%2], func(ctx context.Context, tx jobstore.Tx) error {
							if err := tx.Lock(ctx, some...); err != nil {
								return err
							}
							if i%3 == 2 { // these may run at the same time
								if n := inside.Load(); n > 0 {
									w.Errorf("%d transactions hold very many names that another has one of", n)
								}
								return nil
							}
							if n := inside.Add(1); n > 1 {
								w.Errorf("%d transactions hold very many names", n)
							}
							_, err := tx.All(ctx, jobstore.Page{Limit: 1})
							inside.Add(-1)
							return err
						})
					}
				})
			},
		},
		{
			Area: "lock", Name: "names",
			Explain: "Names have 1 to 300 bytes of any value. Others are refused.",
			Run: func(w *world) {
				s := w.Open()
				for _, name := range []string{"x", strings.Repeat("é", 150), `o'clock "; --`, "a\x00b", "\xff\xfe", "%_*?[", " "} {
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, name) })
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, name := range []string{"", strings.Repeat("x", 301)} {
					err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, "fine", name) })
					w.WantIs(err, jobs.ErrBadJob, "Lock of a name of %d bytes", len(name))
				}
			},
		},
		{
			Area: "lock", Name: "different names",
			Explain: "If transactions run in parallel, those that lock different names and jobs do not wait for each other.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				mine, theirs := w.add(s, "mine"), w.add(s, "theirs")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					if err := tx.Lock(ctx, "a"); err != nil {
						return err
					}
					if _, err := tx.Get(ctx, mine.ID); err != nil {
						return err
					}
					return other.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						if err := tx.Lock(ctx, "b"); err != nil {
							return err
						}
						return edit(ctx, tx, theirs.ID, func(j *jobs.Row) { j.Run++ })
					})
				})
			},
		},
	}
}
