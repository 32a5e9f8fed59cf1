package jobstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// errCase is the error with which a case rolls a transaction back.
var errCase = errors.New("jobstest: not after all")

// updateCases returns the cases about Store.Update, Single and Insert.
func updateCases() []testCase {
	return []testCase{
		{
			Area: "update", Name: "seen by others",
			Explain: "When Update returns nil, all changes are stored: another process sees them.",
			Run: func(w *world) {
				s := w.Open()
				list := w.save(s, w.job(s, "a"), w.job(s, "b"))
				w.edit(s, list[0].ID, func(j *jobs.Row) { j.Data = []byte(`{"n":1}`) })
				other := w.Open()
				if got := w.get(other, list[0].ID); string(got.Data) != `{"n":1}` {
					w.Errorf("another store reads %s", got.Data)
				}
				w.wantIDs(w.find(other, Query{}), list, "all that was saved")
			},
		},
		{
			Area: "update", Name: "an error undoes all",
			Explain: "An error of fn undoes all changes of the transaction and is returned unchanged, so that a caller recognizes its own errors.",
			Run: func(w *world) {
				s := w.Open()
				kept := w.save(s, w.job(s, "kept"), w.job(s, "kept"))
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, run := range map[string]func(context.Context, txFunc) error{"Update": s.Update, "View": s.View, "Single": s.Single} {
					err := run(ctx, func(ctx context.Context, tx jobstore.Tx) error {
						if name == "Update" {
							if err := spoil(ctx, tx, kept); err != nil {
								return err
							}
						}
						return errCase
					})
					if err != errCase { //nolint:errorlint // as it is
						w.Errorf("%s returned %v, not the error of fn", name, err)
					}
				}
				for _, j := range kept {
					w.wantSame(w.get(w.Open(), j.ID), j, "after the error")
				}
				w.wantIDs(w.find(s, Query{}), kept, "what is there after the error")
				w.wantIDs(w.find(s, due("*", 10)), kept, "what is due after the error")
				// the change was undone
				w.wantFirst(s, nil, []jobstore.Group{{By: jobstore.BySequence, Key: "k"}}, 0)
			},
		},
		{
			Area: "update", Name: "one after the other",
			Explain: "Transactions that read the same jobs have the same effect as one after the other: no change is lost, whether a job was read by Get or by Jobs.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				j := w.add(s, "counter", func(j *jobs.Row) { j.Parent = 7; j.SequenceKey = "k" })
				reads := []func(ctx context.Context, tx jobstore.Tx) (jobs.Row, error){
					func(ctx context.Context, tx jobstore.Tx) (jobs.Row, error) { return tx.Get(ctx, j.ID) },
					func(ctx context.Context, tx jobstore.Tx) (jobs.Row, error) {
						return only(tx.Jobs(ctx, []jobs.ID{j.ID}...))
					},
				}
				const runs, each = 8, 6
				all(runs, func(i int) {
					from := []jobs.Store{s, other}[i%2]
					for range each {
						w.try(from, func(ctx context.Context, tx jobstore.Tx) error {
							j, err := reads[i%len(reads)](ctx, tx)
							if err != nil {
								return err
							}
							j.Run++
							return tx.Save(ctx, &j)
						})
					}
				})
				if got := w.get(s, j.ID).Run; got != runs*each {
					w.Errorf("%d transactions added one each, and came to %d", runs*each, got)
				}
			},
		},
		{
			Area: "update", Name: "its own changes",
			Explain: "A transaction sees its own changes.",
			Run: func(w *world) {
				s := w.Open()
				old := w.add(s, "old")
				template := w.job(s, "new")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					j := template
					if err := tx.Save(ctx, &j); err != nil {
						return err
					}
					if err := edit(ctx, tx, old.ID, func(j *jobs.Row) { j.Name = "newer" }); err != nil {
						return err
					}
					if err := edit(ctx, tx, j.ID, func(j *jobs.Row) { j.Priority = 7 }); err != nil {
						return err
					}
					if got, err := only(tx.Named(ctx, "new", jobstore.Page{})); err != nil || got.ID != j.ID || got.Priority != 7 {
						return fmt.Errorf("finding what was saved: %d, %w", got.ID, err)
					}
					if got, err := only(due("newer", 1).Find(ctx, tx)); err != nil || got.ID != old.ID {
						return fmt.Errorf("finding what became due: %d, %w", got.ID, err)
					}
					if err := tx.Delete(ctx, old.ID); err != nil {
						return err
					}
					if _, err := tx.Get(ctx, old.ID); !errors.Is(err, jobs.ErrNotFound) {
						return fmt.Errorf("getting what was deleted: %w", err)
					}
					return nil
				})
			},
		},
		{
			Area: "update", Name: "spoilt",
			Explain: "After an error of a method of tx the transaction cannot commit, even if fn ignores the error. Otherwise only a part of the changes would be stored. ErrNotFound does not prevent the commit.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "a")
				ctx, cancel := w.Ctx()
				defer cancel()
				err := s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					first, bad, last := template, template, template
					_ = tx.Save(ctx, &first)
					bad.Name = ""
					if err := tx.Save(ctx, &bad); !errors.Is(err, jobs.ErrBadJob) {
						return fmt.Errorf("saving a bad job: %w", err)
					}
					_ = tx.Save(ctx, &last)
					return nil
				})
				if w.Clean(err) == nil {
					w.Error("a transaction was committed one of whose calls has failed")
				}
				if got := w.find(s, Query{}); len(got) > 0 {
					w.Errorf("%d jobs of a spoilt transaction are there", len(got))
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					if _, err := tx.Get(ctx, 4711); !errors.Is(err, jobs.ErrNotFound) {
						return fmt.Errorf("getting a job that is not there: %w", err)
					}
					j := template
					return tx.Save(ctx, &j)
				})
				if got := w.find(s, Query{}); len(got) != 1 {
					w.Errorf("%d jobs are there after a transaction in which one was not found", len(got))
				}
			},
		},
		{
			Area: "update", Name: "nothing",
			Explain: "A transaction without changes, or without a call, commits.",
			Run: func(w *world) {
				s := w.Open()
				w.update(s, func(context.Context, jobstore.Tx) error { return nil })
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					return errors.Join(tx.Save(ctx), tx.Delete(ctx), tx.Lock(ctx))
				})
			},
		},
		{
			Area: "update", Name: "now",
			Explain: "Now is the store's time and does not go backwards within a transaction. It is stored exactly: a job that is due now is due.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "a")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					var last time.Time
					for range 10 {
						now, err := tx.Now(ctx)
						if err != nil {
							return err
						}
						if now.Before(last) || now.Location() != time.UTC {
							return fmt.Errorf("now is %v after %v", now, last)
						}
						last = now
					}
					j := template
					j.Due = last
					if err := tx.Save(ctx, &j); err != nil {
						return err
					}
					got, err := only(due("a", 1).Find(ctx, tx))
					if err != nil {
						return fmt.Errorf("what is due now: %w", err)
					}
					if !got.Due.Equal(last) {
						return fmt.Errorf("now was %v, and is kept as %v", last, got.Due)
					}
					return nil
				})
			},
		},
		{
			Area: "update", Name: "single",
			Explain: "Single is Update for one call: its change is stored when it returns nil, and is not when fn returns an error.",
			Run: func(w *world) {
				s := w.Open()
				template := w.job(s, "a")
				ctx, cancel := w.Ctx()
				defer cancel()
				var j jobs.Row
				w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					j = template
					return tx.Save(ctx, &j)
				}), "Save alone")
				w.wantSame(w.get(w.Open(), j.ID), j, "what was saved alone")
				var got jobs.Row
				w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
					if _, err := tx.Now(ctx); err != nil {
						return err
					}
					got, err = tx.Get(ctx, j.ID)
					return err
				}), "Get alone, and Now")
				w.wantSame(got, j, "what was got alone")
				w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) (err error) {
					got, err = only(due("a", 1).Find(ctx, tx))
					return err
				}), "Find alone")
				w.wantSame(got, j, "what was found alone")
				if err := s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					if err := tx.Delete(ctx, j.ID); err != nil {
						return err
					}
					return errCase
				}); !errors.Is(err, errCase) {
					w.Errorf("Single returned %v, not the error of fn", err)
				}
				w.wantSame(w.get(s, j.ID), j, "after an error")
				w.WantIs(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					_, err := tx.Get(ctx, 4711)
					return err
				}), jobs.ErrNotFound, "Get of nothing, alone")
				w.Must(s.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, j.ID) }), "Delete alone")
				w.gone(s, j.ID, "what was deleted alone")
			},
		},
		{
			Area: "update", Name: "save over nothing",
			Explain: "Save of a job with a missing id returns ErrNotFound and writes no other job, so that a deleted job does not reappear.",
			Run: func(w *world) {
				s := w.Open()
				kept, gone := w.add(s, "kept"), w.add(s, "gone")
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, gone.ID) })
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					j, err := tx.Get(ctx, kept.ID)
					if err != nil {
						return err
					}
					j.Data = []byte(`{"n":1}`)
					return tx.Save(ctx, &j, &gone)
				}), jobs.ErrNotFound, "Save of a job that is gone")
				w.gone(s, gone.ID, "the job that was deleted")
				w.wantSame(w.get(s, kept.ID), kept, "the job saved with it")
			},
		},
		{
			Area: "update", Name: "insert",
			Explain: "Insert, if a store has it, is Update with one Save of new jobs: all of them are stored in order when it returns nil. None is stored if one is invalid or has an id, or if draft panics. draft receives the store's time.",
			Run: func(w *world) {
				s := w.Open()
				in, ok := capability.As[jobstore.Inserter](s)
				if !ok {
					return // new jobs are then saved in a Single
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, n := range []int{1, 3, 0} {
					before, after := w.find(s, Query{}), time.Time{}
					var list []jobs.Row
					w.Must(in.Insert(ctx, func(now time.Time) []*jobs.Row {
						after, list = now, make([]jobs.Row, n)
						for i := range list {
							list[i] = w.job(s, "new", func(j *jobs.Row) { j.Priority = i })
						}
						return pointers(list)
					}), "Insert of %d", n)
					w.wantIDs(w.find(w.Open(), Query{}), append(before, list...), "what is there after an Insert of %d", n)
					for _, j := range list {
						w.wantSame(w.get(s, j.ID), j, "a new job")
					}
					if now := w.now(s); after.IsZero() || now.Before(after) {
						w.Errorf("draft was given %v, which is later than %v", after, now)
					}
				}
				there := w.find(s, Query{})
				bad, old := w.job(s, ""), there[0]
				for what, list := range map[string][]*jobs.Row{"a bad job": {&bad}, "a bad job behind a good one": {ptr(w.job(s, "good")), &bad}, "an old job": {&old}} {
					w.WantIs(in.Insert(ctx, func(time.Time) []*jobs.Row { return list }), jobs.ErrBadJob, "Insert of %s", what)
				}
				func() {
					defer func() {
						if recover() == nil {
							w.Errorf("the panic of draft was kept")
						}
					}()
					_ = in.Insert(ctx, func(time.Time) []*jobs.Row { panic("draft") })
				}()
				w.wantIDs(w.find(s, Query{}), there, "what is there after all that")
			},
		},
		{
			Area: "update", Name: "capabilities",
			Explain: "A transaction implements Taker, Dropper and Weigher as the harness declares, in Update and in Single, so that every capability is tested.",
			Run: func(w *world) {
				s := w.Open()
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, run := range map[string]func(context.Context, txFunc) error{"Update": s.Update, "Single": s.Single} {
					w.Must(run(ctx, func(_ context.Context, tx jobstore.Tx) error {
						if _, ok := capability.As[jobstore.Taker](tx); ok != w.h.Promises.Take {
							return fmt.Errorf("offered as a Taker: %v, promised: %v", ok, w.h.Promises.Take)
						}
						if _, ok := capability.As[jobstore.Dropper](tx); ok != w.h.Promises.Drop {
							return fmt.Errorf("offered as a Dropper: %v, promised: %v", ok, w.h.Promises.Drop)
						}
						if _, ok := capability.As[jobstore.Weigher](tx); ok != w.h.Promises.Weigh {
							return fmt.Errorf("offered as a Weigher: %v, promised: %v", ok, w.h.Promises.Weigh)
						}
						return nil
					}), "%s", name)
				}
			},
		},
	}
}

// ptr returns a pointer to a copy of j.
func ptr(j jobs.Row) *jobs.Row { return &j }

// spoil adds a job, changes many fields of kept[0] and deletes kept[1], in tx. Returns the first
// error of tx.
func spoil(ctx context.Context, tx jobstore.Tx, kept []jobs.Row) error {
	fresh := kept[0]
	fresh.ID = 0
	if err := tx.Save(ctx, &fresh); err != nil {
		return err
	}
	err := edit(ctx, tx, kept[0].ID, func(j *jobs.Row) {
		j.Name, j.Priority, j.SequenceKey, j.Due, j.Data = "changed", 1, "k", time.Time{}, []byte(`{"changed":true}`)
	})
	if err != nil {
		return err
	}
	if err := edit(ctx, tx, kept[0].ID, func(j *jobs.Row) {
		j.Mock, j.Parent, j.Queue, j.Weight, j.Key, j.UniqueKey, j.Expires = true, 3, "q", 7, "k", "u", j.Created
	}); err != nil {
		return err
	}
	return tx.Delete(ctx, kept[1].ID)
}

// only returns the single job of found. Returns err if it is not nil, and an error unless found has
// one job.
func only(found []jobs.Row, err error) (jobs.Row, error) {
	if err != nil {
		return jobs.Row{}, err
	}
	if len(found) != 1 {
		return jobs.Row{}, fmt.Errorf("%d jobs were found, not one", len(found))
	}
	return found[0], nil
}
