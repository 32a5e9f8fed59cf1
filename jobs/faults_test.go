package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// faulty is a store in which the n-th call of a transaction fails.
type faulty struct {
	jobs.Store
	n, calls int
	failed   bool
}

var errCut = fmt.Errorf("%w: cut", jobs.ErrUnavailable)

func (f *faulty) call() error {
	if f.n == 0 {
		return nil
	}
	if f.calls++; f.calls == f.n {
		f.failed = true
		return errCut
	}
	return nil
}

func (f *faulty) Single(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return f.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, faultyTx{tx, f}) })
}

func (f *faulty) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return f.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, faultyTx{tx, f}) })
}

func (f *faulty) View(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return f.Store.View(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, faultyTx{tx, f}) })
}

type faultyTx struct {
	jobstore.Tx
	f *faulty
}

func (t faultyTx) Now(ctx context.Context) (time.Time, error) {
	if err := t.f.call(); err != nil {
		return time.Time{}, err
	}
	return t.Tx.Now(ctx)
}

func (t faultyTx) Lock(ctx context.Context, names ...string) error {
	if err := t.f.call(); err != nil {
		return err
	}
	return t.Tx.Lock(ctx, names...)
}

func (t faultyTx) Get(ctx context.Context, id jobs.ID) (jobs.Row, error) {
	if err := t.f.call(); err != nil {
		return jobs.Row{}, err
	}
	return t.Tx.Get(ctx, id)
}

func (t faultyTx) Jobs(ctx context.Context, ids ...jobs.ID) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.Jobs(ctx, ids...) })
}

func (t faultyTx) All(ctx context.Context, p jobstore.Page) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.All(ctx, p) })
}

func (t faultyTx) Named(ctx context.Context, name string, p jobstore.Page) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.Named(ctx, name, p) })
}

func (t faultyTx) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.OfKey(ctx, name, key, p) })
}

func (t faultyTx) First(ctx context.Context, states []jobs.State, groups ...jobstore.Group) (map[jobstore.Group]jobs.ID, error) {
	if err := t.f.call(); err != nil {
		return nil, err
	}
	return t.Tx.First(ctx, states, groups...)
}

func (t faultyTx) OpenDeferrals(ctx context.Context, groups ...jobstore.Group) (map[jobstore.Group]task.ID, error) {
	if err := t.f.call(); err != nil {
		return nil, err
	}
	return t.Tx.OpenDeferrals(ctx, groups...)
}

func (t faultyTx) OfQueue(ctx context.Context, queue string, p jobstore.Page) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.OfQueue(ctx, queue, p) })
}

func (t faultyTx) Children(ctx context.Context, parent jobs.ID, p jobstore.Page) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.Children(ctx, parent, p) })
}

func (t faultyTx) LastOver(ctx context.Context, name, key string) (*jobs.Row, error) {
	if err := t.f.call(); err != nil {
		return nil, err
	}
	return t.Tx.LastOver(ctx, name, key)
}

func (t faultyTx) ExpireJobs(ctx context.Context, by time.Time, limit int) (int, error) {
	if err := t.f.call(); err != nil {
		return 0, err
	}
	return t.Tx.ExpireJobs(ctx, by, limit)
}

func (t faultyTx) Due(ctx context.Context, d jobs.Due, limit int) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.Due(ctx, d, limit) })
}

func (t faultyTx) Line(ctx context.Context, l jobs.Line, limit int) ([]jobs.Row, error) {
	return t.find(func() ([]jobs.Row, error) { return t.Tx.Line(ctx, l, limit) })
}

// find calls ask, unless this call must fail.
func (t faultyTx) find(ask func() ([]jobs.Row, error)) ([]jobs.Row, error) {
	if err := t.f.call(); err != nil {
		return nil, err
	}
	return ask()
}

func (t faultyTx) Save(ctx context.Context, all ...*jobs.Row) error {
	if err := t.f.call(); err != nil {
		return err
	}
	return t.Tx.Save(ctx, all...)
}

func (t faultyTx) Delete(ctx context.Context, ids ...jobs.ID) error {
	if err := t.f.call(); err != nil {
		return err
	}
	return t.Tx.Delete(ctx, ids...)
}

// TestEveryCallFails makes each call of a transaction fail in turn, for every command. The command
// returns the error and changes nothing. A claim that was undone may leave a higher token.
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	finish := func(id jobs.ID) func(w *world) error {
		return func(w *world) error { return w.Finish(w.Context(), jobs.Finish{ID: id}) }
	}
	get := func(pattern string) func(w *world) error {
		return func(w *world) error {
			_, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: pattern}, Max: 10})
			return err
		}
	}
	family := func(w *world) { // 1 is the parent of 2 and 3
		w.create(jobs.Spec{Name: "p"})
		w.get("p")
		w.create(jobs.Spec{Name: "c", Parent: 1})
		w.create(jobs.Spec{Name: "c", Parent: 1, RetryAfter: "+1 MINUTE"})
	}
	paused := func(w *world) {
		family(w)
		w.finish(1)
	}
	resumed := func(w *world) {
		paused(w)
		w.ok(w.Cancel(w.Context(), 2))
		w.ok(w.Cancel(w.Context(), 3))
	}
	tired := func(w *world) { // one claim of job 3, or of job 1 of a key, is left
		for range 10 {
			_, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "[cs]"}, Max: 10})
			w.ok(err)
			time.Sleep(time.Minute)
		}
	}
	for name, c := range map[string]struct {
		before func(w *world)
		do     func(w *world) error
	}{
		"create": {func(*world) {}, func(w *world) error {
			_, err := w.Create(w.Context(), jobs.Spec{Name: "a"})
			return err
		}},
		"create all": {family, func(w *world) error {
			_, err := w.CreateAll(w.Context(), []jobs.Spec{
				{Name: "a"},
				{Name: "s", SequenceKey: "k"},
				{Name: "s", SequenceKey: "k"},
				{Name: "u", Unique: true},
				{Name: "u", Unique: true, Data: []byte(`{"x":1}`)},
				{Name: "c", Unique: true, Parent: 1, Data: []byte(`{"x":1}`)},
				{Name: "d", Parent: 1},
			})
			return err
		}},
		"first child":     {func(w *world) { w.bring(jobs.Running) }, func(w *world) error { _, err := w.Create(w.Context(), jobs.Spec{Name: "c", Parent: 1}); return err }},
		"get":             {paused, get("*")},
		"get the parent":  {resumed, get("p")},
		"give up a child": {func(w *world) { paused(w); w.ok(w.Cancel(w.Context(), 2)); tired(w) }, get("c")},
		"give up in sequences": {func(w *world) {
			w.create(jobs.Spec{Name: "s", SequenceKey: "k", RetryAfter: "+1 MINUTE"})
			w.line(1)
			tired(w)
		}, get("s")},
		"pause":               {family, finish(1)},
		"finish the last one": {func(w *world) { paused(w); w.ok(w.Cancel(w.Context(), 3)); w.get("c") }, finish(2)},
		"finish the parent":   {func(w *world) { resumed(w); w.get("p") }, finish(1)},
		"finish in sequence":  {func(w *world) { w.line(3); w.get("s") }, finish(1)},
		"finish and repeat":   {func(w *world) { w.create(jobs.Spec{Name: "r", Repeat: "HOURLY"}); w.get("r") }, finish(1)},
		"retry":               {func(w *world) { paused(w); w.get("c") }, func(w *world) error { return w.Retry(w.Context(), jobs.Retry{ID: 2}) }},
		"fail":                {func(w *world) { w.line(2); w.get("s") }, func(w *world) error { return w.Fail(w.Context(), jobs.Fail{ID: 1}) }},
		"delete":              {func(w *world) { w.line(2) }, func(w *world) error { return w.Delete(w.Context(), 1) }},
		"delete a parent":     {func(w *world) { resumed(w); w.ok(w.Delete(w.Context(), 2)); w.ok(w.Delete(w.Context(), 3)) }, func(w *world) error { return w.Delete(w.Context(), 1) }},
		"cancel":              {func(w *world) { paused(w); w.ok(w.Cancel(w.Context(), 2)) }, func(w *world) error { return w.Cancel(w.Context(), 3) }},
		"requeue": {
			func(w *world) { w.line(3); w.get("s"); w.ok(w.Fail(w.Context(), jobs.Fail{ID: 1})) },
			func(w *world) error { return w.Requeue(w.Context(), []jobs.ID{1, 2, 3}, "") },
		},
		"update": {func(w *world) { w.bring(jobs.RunQueued) }, func(w *world) error { return w.Update(w.Context(), jobs.Update{ID: 1, Data: []byte("{}")}) }},
		"renew":  {func(w *world) { w.bring(jobs.Running) }, func(w *world) error { return w.Renew(w.Context(), 1, 1, time.Hour) }},
		"give back": {func(w *world) { w.bring(jobs.RunQueued) }, func(w *world) error {
			return w.GiveBack(w.Context(), jobs.Handout{Row: jobs.Row{Job: jobs.Job{ID: 1}, Token: 1}})
		}},
		"query": {func(w *world) { w.bring(jobs.Running) }, func(w *world) error { _, err := w.Query(w.Context(), 1); return err }},
		"list":  {func(w *world) { w.bring(jobs.Running) }, func(w *world) error { _, err := w.List(w.Context(), jobs.Filter{}); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: openMem(t)}
				s, err := jobs.New(jobs.Config{Store: f, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := errors.Join(s.Close(t.Context()), f.Close(t.Context())); err != nil {
						t.Error(err)
					}
				}()
				w := &world{t, s, f}
				c.before(w)
				before := w.all()
				for n := 1; ; n++ {
					f.n, f.calls, f.failed = n, 0, false
					err := c.do(w)
					f.n = 0
					if !f.failed {
						w.ok(err)
						if n == 1 {
							w.Fatal("it calls nothing")
						}
						return
					}
					w.is(err, jobs.ErrUnavailable)
					if diff := cmp.Diff(before, w.all()); diff != "" {
						w.Fatalf("after the failure of call %d (-before +after):\n%s", n, diff)
					}
				}
			})
		})
	}
}

// all returns every job, without the fields that an undone claim changes.
func (w *world) all() []jobs.Row {
	w.Helper()
	all, err := w.Rows(w.Context(), jobs.Filter{})
	w.ok(err)
	for i := range all {
		all[i].Token, all[i].LastRun, all[i].Scheduled, all[i].Changed = 0, time.Time{}, time.Time{}, time.Time{}
	}
	return all
}
