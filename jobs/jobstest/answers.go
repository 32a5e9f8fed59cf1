package jobstest

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// waiting returns a deferral of the task id that awaits the answer to key until due. The edits
// change it.
func waiting(id, key string, due time.Time, edits ...func(*jobstore.Deferral)) *jobstore.Deferral {
	d := &jobstore.Deferral{
		Task: task.ID(id), Queue: "q", Name: "ask", Generation: 2, AtMostOnce: true, Key: key, Phase: jobstore.DeferralAwaiting, Fence: 3, Deadline: due, Due: due,
		State: []byte(`{"a":1}`),
	}
	for _, edit := range edits {
		edit(d)
	}
	return d
}

// over returns an edit that makes a deferral over, with an answer and this Expires.
func over(expires time.Time) func(*jobstore.Deferral) {
	return func(d *jobstore.Deferral) {
		d.Phase, d.Verdict, d.Deadline, d.Due, d.Expires, d.State = jobstore.DeferralOver, jobstore.VerdictAnswer, time.Time{}, time.Time{}, expires, nil
	}
}

// defers saves deferrals in one transaction. An error fails the case at once.
func (w *world) defers(s jobs.Store, all ...*jobstore.Deferral) {
	w.Helper()
	w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveDeferrals(ctx, all...) })
}

// wantDeferrals checks that ask returns the deferrals want, in this order, in a View and in an
// Update. A difference fails the case, which continues. what names the deferrals in the failure.
func (w *world) wantDeferrals(s jobs.Store, what string, ask func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error), want ...*jobstore.Deferral) {
	w.Helper()
	for _, run := range []func(jobs.Store, txFunc){w.view, w.update} {
		var got []jobstore.Deferral
		run(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
			got, err = ask(ctx, tx)
			return err
		})
		var have []*jobstore.Deferral
		for i := range got {
			have = append(have, &got[i])
		}
		if diff := cmp.Diff(want, have); diff != "" {
			w.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// of returns a function for wantDeferrals that reads the deferral of a name and a key (DeferralOf):
// a list of one, or no list.
func of(name, key string) func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
	return func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
		d, err := tx.DeferralOf(ctx, name, key)
		if d == nil {
			return nil, err
		}
		return []jobstore.Deferral{*d}, err
	}
}

// answerCases returns the cases about early answers, deferrals and leases of queues.
func answerCases() []testCase {
	return []testCase{
		{
			Area: "answers", Name: "early answers",
			Explain: "Each name and key has at most one early answer: SaveEarly replaces it, DeleteEarly deletes it, and Early returns it whether it has expired or not.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s).Add(-time.Hour)
				want := func(name, key string, want *jobstore.EarlyAnswer) {
					w.Helper()
					for _, run := range []func(jobs.Store, txFunc){w.view, w.update} {
						run(s, func(ctx context.Context, tx jobstore.Tx) error {
							got, err := tx.Early(ctx, name, key)
							if diff := cmp.Diff(want, got); diff != "" {
								w.Errorf("the early answer of %s %s (-want +got):\n%s", name, key, diff)
							}
							return err
						})
					}
				}
				first := &jobstore.EarlyAnswer{Name: "a", Key: "k", Result: []byte(`{"r":"ü"}`), Expires: at}
				refusal := &jobstore.EarlyAnswer{Name: "b", Key: "k", Refusal: "no", Expires: at.Add(time.Second)}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveEarly(ctx, first, refusal) })
				want("a", "k", first)
				want("b", "k", refusal)
				want("a", "l", nil)
				other := &jobstore.EarlyAnswer{Name: "a", Key: "k", Result: []byte("2"), Expires: at.Add(time.Minute)}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveEarly(ctx, other) })
				want("a", "k", other)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					return errors.Join(tx.DeleteEarly(ctx, "a", "k"), tx.DeleteEarly(ctx, "a", "none"))
				})
				want("a", "k", nil)
				want("b", "k", refusal)
			},
		},
		{
			Area: "answers", Name: "expired early answers",
			Explain: "ExpireEarly deletes and returns at most limit expired early answers, in the order of Expires. It stops when these have size bytes in total.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s).Add(-time.Hour)
				var all []*jobstore.EarlyAnswer
				for i, key := range []string{"c", "a", "b", "later"} {
					all = append(all, &jobstore.EarlyAnswer{Name: "n", Key: key, Result: []byte("1"), Expires: at.Add(time.Duration(i) * time.Minute)})
				}
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveEarly(ctx, all...) })
				expire := func(limit, size int, want ...string) {
					w.Helper()
					var got map[string]bool
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
						got = map[string]bool{}
						gone, err := tx.ExpireEarly(ctx, at.Add(2*time.Minute), limit, size)
						for i := range gone {
							got[gone[i].Key] = string(gone[i].Result) == "1"
						}
						return err
					})
					keys := map[string]bool{}
					for _, key := range want {
						keys[key] = true
					}
					if diff := cmp.Diff(keys, got); diff != "" {
						w.Errorf("expired (-want +got):\n%s", diff)
					}
				}
				expire(9, 1, "c")
				expire(1, 9, "a")
				expire(9, 9, "b")
				expire(9, 9)
			},
		},
		{
			Area: "answers", Name: "deferrals",
			Explain: "Each task has at most one deferral: SaveDeferrals replaces it with all fields, and Deferrals returns deferrals in the order of the tasks.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				a := waiting("t1", "k", at.Add(time.Hour))
				b := waiting("t2", "l", at, func(d *jobstore.Deferral) {
					d.Phase, d.Verdict, d.Answer, d.Claimed, d.AtMostOnce, d.State = jobstore.DeferralDecided, jobstore.VerdictAnswer, []byte(`"ü"`), true, false, nil
				})
				w.defers(s, b, a)
				tasks := func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
					return tx.Deferrals(ctx, "t2", "none", "t1")
				}
				w.wantDeferrals(s, "saved", tasks, a, b)
				a = waiting("t1", "m", at, over(at.Add(time.Hour)))
				a.Generation, a.Refusal = -1, "no"
				w.defers(s, a)
				w.wantDeferrals(s, "saved again", tasks, a, b)
				w.wantDeferrals(w.Open(), "in another store", tasks, a, b)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.DeleteDeferrals(ctx, "t2", "none") })
				w.wantDeferrals(s, "deleted", tasks, a)
			},
		},
		{
			Area: "answers", Name: "the deferral of a key",
			Explain: "DeferralOf returns the open deferral of a name and a key, or the one that was over last. OpenDeferrals returns the tasks of the open deferrals of several keys.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				first, last := waiting("t1", "k", at, over(at.Add(time.Minute))), waiting("t2", "k", at, over(at.Add(time.Hour)))
				w.defers(s, first, last, waiting("t3", "l", at))
				w.wantDeferrals(s, "those that are over", of("ask", "k"), last)
				open := waiting("t4", "k", at)
				w.defers(s, open)
				w.wantDeferrals(s, "an open one", of("ask", "k"), open)
				group := func(name, key string) jobstore.Group { return jobstore.Group{Name: name, Key: key} }
				w.view(s, func(ctx context.Context, tx jobstore.Tx) error {
					tasks, err := tx.OpenDeferrals(ctx, group("ask", "k"), group("ask", "l"), group("other", "k"), group("ask", "none"),
						jobstore.Group{By: jobstore.ByUniqueKey, Name: "ask", Key: "k"})
					if want := (map[jobstore.Group]task.ID{group("ask", "k"): "t4", group("ask", "l"): "t3"}); !maps.Equal(tasks, want) {
						w.Errorf("the open deferrals are those of %v, not %v", tasks, want)
					}
					return err
				})
				w.wantDeferrals(s, "another name", of("other", "k"))
				w.wantDeferrals(s, "another key", of("ask", "none"))
			},
		},
		{
			Area: "answers", Name: "deferrals that are due",
			Explain: "DueDeferrals returns the first open deferrals of a queue whose Due is not after a time, in the order of Due. AwaitingDeferrals returns deferrals in the order of task ids.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				a, b, c := waiting("t3", "a", at), waiting("t2", "b", at.Add(time.Second)), waiting("t1", "c", at.Add(time.Hour))
				reserved := waiting("t0", "r", at.Add(time.Minute), func(d *jobstore.Deferral) { d.Phase = jobstore.DeferralReserved })
				elsewhere := waiting("t5", "e", at, func(d *jobstore.Deferral) { d.Queue = "other" })
				w.defers(s, a, b, c, reserved, elsewhere, waiting("t6", "o", at, over(at)))
				due := func(by time.Time, limit int) func(context.Context, jobstore.Tx) ([]jobstore.Deferral, error) {
					return func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
						return tx.DueDeferrals(ctx, "q", by, limit)
					}
				}
				w.wantDeferrals(s, "due now", due(at, 9), a)
				w.wantDeferrals(s, "due later", due(at.Add(time.Hour), 9), a, b, reserved, c)
				w.wantDeferrals(s, "the first", due(at.Add(time.Hour), 2), a, b)
				w.wantDeferrals(s, "before", due(at.Add(-time.Second), 9))
				awaiting := func(after task.ID, limit int) func(context.Context, jobstore.Tx) ([]jobstore.Deferral, error) {
					return func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
						return tx.AwaitingDeferrals(ctx, "q", after, limit)
					}
				}
				w.wantDeferrals(s, "awaiting", awaiting("", 9), c, b, a)
				w.wantDeferrals(s, "awaiting, a page", awaiting("t1", 1), b)
			},
		},
		{
			Area: "answers", Name: "due deferrals of others",
			Explain: "DueDeferrals skips deferrals that another transaction has locked, and does not wait.",
			Needs:   []need{needsParallel},
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				w.defers(s, waiting("t1", "a", at), waiting("t2", "b", at))
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
					if _, err := tx.Deferrals(ctx, "t1"); err != nil {
						return err
					}
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
						found, err := tx.DueDeferrals(ctx, "q", at, 9)
						if err == nil && (len(found) != 1 || found[0].Task != "t2") {
							w.Errorf("due are %+v", found)
						}
						return err
					})
					return nil
				})
			},
		},
		{
			Area: "answers", Name: "deferrals that expire",
			Explain: "ExpireDeferrals deletes at most limit deferrals whose Expires has passed, and returns their number.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				stays := waiting("t4", "k", at, over(at.Add(time.Hour)))
				w.defers(s, waiting("t1", "k", at, over(at)), waiting("t2", "k", at, over(at)), waiting("t3", "k", at, over(at)), stays, waiting("t5", "l", at))
				for _, want := range []int{2, 1, 0} {
					w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
						n, err := tx.ExpireDeferrals(ctx, at, 2)
						if n != want {
							w.Errorf("%d have expired, want %d", n, want)
						}
						return err
					})
				}
				w.wantDeferrals(s, "what is kept", of("ask", "k"), stays)
			},
		},
		{
			Area: "answers", Name: "undone",
			Explain: "An error of fn also undoes changes of early answers and deferrals. A View cannot write them.",
			Run: func(w *world) {
				s := w.Open()
				at := w.now(s)
				d := waiting("t1", "k", at)
				e := &jobstore.EarlyAnswer{Name: "a", Key: "k", Result: []byte("1"), Expires: at}
				w.defers(s, d)
				w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveEarly(ctx, e) })
				vain := errors.New("in vain")
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					return errors.Join(
						tx.SaveDeferrals(ctx, waiting("t1", "l", at, over(at)), waiting("t2", "m", at)), tx.DeleteDeferrals(ctx, "t1"),
						tx.SaveEarly(ctx, &jobstore.EarlyAnswer{Name: "b", Key: "k", Expires: at}), tx.DeleteEarly(ctx, "a", "k"), vain,
					)
				}), vain, "Update")
				for name, write := range map[string]func(ctx context.Context, tx jobstore.Tx) error{
					"SaveEarly":       func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveEarly(ctx, e) },
					"DeleteEarly":     func(ctx context.Context, tx jobstore.Tx) error { return tx.DeleteEarly(ctx, "a", "k") },
					"ExpireEarly":     func(ctx context.Context, tx jobstore.Tx) error { _, err := tx.ExpireEarly(ctx, at, 1, 1); return err },
					"SaveDeferrals":   func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveDeferrals(ctx, d) },
					"DeleteDeferrals": func(ctx context.Context, tx jobstore.Tx) error { return tx.DeleteDeferrals(ctx, "t1") },
					"ExpireDeferrals": func(ctx context.Context, tx jobstore.Tx) error { _, err := tx.ExpireDeferrals(ctx, at, 1); return err },
				} {
					w.WantIs(s.View(ctx, write), jobs.ErrUnsupported, "%s in a View", name)
				}
				w.wantDeferrals(s, "as before", func(ctx context.Context, tx jobstore.Tx) ([]jobstore.Deferral, error) {
					return tx.Deferrals(ctx, "t1", "t2")
				}, d)
				w.view(s, func(ctx context.Context, tx jobstore.Tx) error {
					a, err := tx.Early(ctx, "a", "k")
					b, err2 := tx.Early(ctx, "b", "k")
					if diff := cmp.Diff(e, a); diff != "" || b != nil {
						w.Errorf("an early answer is undone to %+v:\n%s", b, diff)
					}
					return errors.Join(err, err2)
				})
			},
		},
		{
			Area: "leases", Name: "leases of queues",
			Explain: "Each queue has at most one lease: SaveQueueLease replaces it, QueueLease returns it, and an error of fn undoes the change.",
			Run: func(w *world) {
				s := w.Open()
				l := &jobstore.QueueLease{Queue: "q", Fence: 1, Until: w.now(s).Add(time.Hour), Status: []byte(`{"node":"n"}`)}
				want := func(queue string, want *jobstore.QueueLease) {
					w.Helper()
					for _, run := range []func(jobs.Store, txFunc){w.view, w.update} {
						run(s, func(ctx context.Context, tx jobstore.Tx) error {
							got, err := tx.QueueLease(ctx, queue)
							if diff := cmp.Diff(want, got); diff != "" {
								w.Errorf("the lease of %s (-want +got):\n%s", queue, diff)
							}
							return err
						})
					}
				}
				save := func(l *jobstore.QueueLease) txFunc {
					return func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveQueueLease(ctx, l) }
				}
				want("q", nil)
				w.update(s, save(l))
				want("q", l)
				want("other", nil)
				next := &jobstore.QueueLease{Queue: "q", Fence: 2, Admissions: 7, Until: w.now(s), Status: []byte("{}")}
				w.update(s, save(next))
				want("q", next)
				ctx, cancel := w.Ctx()
				defer cancel()
				vain := errors.New("in vain")
				w.WantIs(s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
					return errors.Join(tx.SaveQueueLease(ctx, l), tx.SaveQueueLease(ctx, &jobstore.QueueLease{Queue: "new", Fence: 1, Status: []byte("{}")}), vain)
				}), vain, "Update")
				want("q", next)
				want("new", nil)
				w.WantIs(s.View(ctx, save(l)), jobs.ErrUnsupported, "SaveQueueLease in a View")
			},
		},
		{
			Area: "leases", Name: "word of leases",
			Explain: "Watchers are notified of a released lease, so that waiting leaders can take it at once.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				var e ear
				defer s.Watch(e.wake)()
				w.Until("a wake-up", func() bool {
					l := &jobstore.QueueLease{Queue: "q", Fence: 1, Until: w.now(other), Status: []byte("{}")}
					w.update(other, func(ctx context.Context, tx jobstore.Tx) error { return tx.SaveQueueLease(ctx, l) })
					return w.soon(func() bool { return e.heard(jobstore.LeaseWord) })
				})
			},
		},
		{
			Area: "answers", Name: "word of deferrals",
			Explain: "Watchers are notified of a due deferral with the word of its queue, and not of a deferral that is due later.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				at := w.now(s)
				var e ear
				defer s.Watch(e.wake)()
				w.Until("a wake-up", func() bool {
					w.defers(other, waiting("t1", "k", at))
					return w.soon(func() bool { return e.heard(jobstore.DeferralWord("q")) })
				})
				var calm ear
				defer s.Watch(calm.wake)()
				far := waiting("t2", "l", at.Add(time.Hour), func(d *jobstore.Deferral) { d.Queue = "far" })
				w.defers(other, far)
				w.Until("another wake-up", func() bool {
					w.defers(other, waiting("t3", "m", at))
					return w.soon(func() bool { return calm.heard(jobstore.DeferralWord("q")) })
				})
				calm.mu.Lock()
				defer calm.mu.Unlock()
				if calm.names[jobstore.DeferralWord("far")] {
					w.Errorf("watchers hear of what is due in an hour")
				}
			},
		},
	}
}
