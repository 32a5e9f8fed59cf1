package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

func TestChildren(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent", Data: []byte(`{"p":1}`), Priority: task.Set(50)})
		w.get("parent")
		a := w.create(jobs.Spec{Name: "a", Parent: p})
		b := w.create(jobs.Spec{Name: "b", Parent: p})
		c := w.create(jobs.Spec{Name: "c", Parent: p})
		w.state(jobs.Paused, a, b, c)
		w.none("a")
		if !w.job(p).HasChildren {
			w.Fatal("the parent knows of no children")
		}
		time.Sleep(time.Minute)
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: p, Data: []byte(`{"p":2}`)}))
		w.state(jobs.Paused, p)
		w.state(jobs.Queued, a, b, c)
		if j := w.job(p); !j.NextRun.Equal(j.LastRun) {
			w.Fatalf("%+v", j)
		}
		h := w.get("a")
		if string(h.ParentData) != `{"p":2}` || h.Parent != p {
			w.Fatalf("%+v", h)
		}
		d := w.create(jobs.Spec{Name: "d", Parent: p}) // a sibling that a child creates
		w.state(jobs.Queued, d)
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: a, Token: 1, Data: []byte(`{"a":1}`)}))
		w.state(jobs.Finished, a)
		w.ok(w.Cancel(w.Context(), b))
		w.state(jobs.Cancelled, b)
		w.get("c")
		w.ok(w.Cancel(w.Context(), c)) // it runs: no effect
		w.state(jobs.Running, c)
		w.finish(c)
		w.state(jobs.Paused, p)
		w.ok(w.Delete(w.Context(), d))
		w.state(jobs.Queued, p)

		h = w.get("parent")
		want := []jobs.Child{{ID: a, Data: []byte(`{"a":1}`)}, {ID: c, Data: []byte(`{}`)}}
		if diff := cmp.Diff(want, h.FinishedChildren); diff != "" || h.Run != 2 {
			w.Fatalf("run %d: %s", h.Run, diff)
		}
		if diff := cmp.Diff([]jobs.Child{{ID: b, Data: []byte(`{}`)}}, h.CancelledChildren); diff != "" {
			w.Fatal(diff)
		}
		w.is(w.Cancel(w.Context(), p), jobs.ErrHasChildren)
		w.ok(w.Retry(w.Context(), jobs.Retry{ID: p})) // the parent gets the same children again
		if h = w.get("parent"); len(h.FinishedChildren) != 2 || len(h.CancelledChildren) != 1 {
			w.Fatalf("%+v", h)
		}
		w.finish(p)
		w.state("", p, a, b, c)
	})
}

func TestParentPausesAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent", Repeat: "FINISHED, +1 HOUR"})
		w.get("parent")
		for i := range 3 {
			child := w.create(jobs.Spec{Name: "child", Parent: p})
			w.finish(p)
			w.state(jobs.Paused, p)
			w.get("child")
			w.finish(child)
			w.state(jobs.Queued, p)
			if h := w.get("parent"); h.Run != int64(i+2) || len(h.FinishedChildren) != 1 {
				w.Fatalf("%+v", h)
			}
		}
		w.finish(p)
		w.state(jobs.Queued, p)
		w.next(p, "2000-01-01T01:00:00Z")
		if left, err := w.List(w.Context(), jobs.Filter{Parent: p}); err != nil || len(left) > 0 {
			w.Fatalf("%v, %v", left, err)
		}
	})
}

func TestChildrenThatFail(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		a := w.create(jobs.Spec{Name: "a", Parent: p})
		b := w.create(jobs.Spec{Name: "b", Parent: p, RetryAfter: "+1 MINUTE"})
		w.finish(p)
		w.get("a")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: a}))
		w.state(jobs.Paused, p)
		for range 10 {
			w.get("b")
			time.Sleep(time.Minute)
		}
		if !w.get("b").GivenUp {
			w.Fatal("not given up")
		}
		w.state(jobs.Failed, a, b)
		w.state(jobs.Queued, p) // it waits for no child
		if h := w.get("parent"); h.FinishedChildren != nil || h.CancelledChildren != nil {
			w.Fatalf("%+v", h)
		}
		w.is(w.Finish(w.Context(), jobs.Finish{ID: p}), jobs.ErrOutstanding)
		w.state(jobs.Running, p)
		w.ok(w.Cancel(w.Context(), a))
		w.state(jobs.Running, p)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: p}), jobs.ErrOutstanding)
		w.state(jobs.Cancelled, a)
		w.ok(w.Delete(w.Context(), b))
		w.finish(p)
		w.state("", p, a, b)
	})
}

func TestChildrenOfTheSecondParent(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		a := w.create(jobs.Spec{Name: "a", Parent: p})
		w.is(w.Delete(w.Context(), a), jobs.ErrChildrenRunning)
		w.ok(w.Cancel(w.Context(), a)) // PAUSED: no effect
		w.state(jobs.Paused, a)
		w.ok(w.Requeue(w.Context(), []jobs.ID{a}, "")) // allowed in any state
		w.get("a")
		w.is(w.Finish(w.Context(), jobs.Finish{ID: a}), jobs.ErrParentNotPaused)
		w.is(w.Retry(w.Context(), jobs.Retry{ID: a}), jobs.ErrParentNotPaused)
		w.finish(p)
		w.state(jobs.Paused, p)
		_, err := w.Create(w.Context(), jobs.Spec{Name: "grandchild", Parent: a})
		w.is(err, jobs.ErrGrandchild)
		w.ok(w.Retry(w.Context(), jobs.Retry{ID: a}))
		w.get("a")
		w.finish(a)
		w.state(jobs.Queued, p)
		w.is(w.Delete(w.Context(), p), jobs.ErrOutstanding)
		w.state(jobs.Queued, p)
	})
}

// TestCancelStates shows the effect of Cancel on a child in every state.
// Promises: B16.
func TestCancelStates(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		queued := w.create(jobs.Spec{Name: "q", Parent: p})
		again := w.create(jobs.Spec{Name: "r", Parent: p, RetryAfter: "+1 HOUR"})
		failed := w.create(jobs.Spec{Name: "f", Parent: p})
		w.finish(p)
		w.get("r")
		w.get("f")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: failed}))
		w.ok(w.Cancel(w.Context(), failed))
		w.ok(w.Cancel(w.Context(), again))
		w.is(w.Finish(w.Context(), jobs.Finish{ID: again}), jobs.ErrNotRunning)
		w.state(jobs.Paused, p)
		w.ok(w.Cancel(w.Context(), queued))
		w.state(jobs.Cancelled, queued, again, failed)
		w.state(jobs.Queued, p)
	})
}

// TestManyChildren uses more children than one page contains.
func TestManyChildren(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		p := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		specs := make([]jobs.Spec, 600)
		for i := range specs {
			specs[i] = jobs.Spec{Name: "child", Parent: p, Data: fmt.Appendf(nil, `{"n":%d}`, i)}
		}
		all, err := w.CreateAll(w.Context(), specs)
		w.ok(err)
		w.finish(p)
		out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "c*d"}, Max: 1000})
		w.ok(err)
		if len(out) != len(specs) {
			w.Fatalf("%d children are due", len(out))
		}
		for i := range out {
			w.state(jobs.Paused, p)
			w.finish(out[i].ID)
		}
		h := w.get("parent")
		if len(h.FinishedChildren) != len(specs) || h.FinishedChildren[599].ID != all[599].ID {
			w.Fatalf("%d children", len(h.FinishedChildren))
		}
		w.finish(p)
		if left, err := w.List(w.Context(), jobs.Filter{}); err != nil || len(left) > 0 {
			w.Fatalf("%d left, %v", len(left), err)
		}
	})
}

// TestLargeChildren shows that a parent gets all its children, with at most MaxChildrenData bytes
// of data. The data do not depend on the methods of the store.
func TestLargeChildren(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		const fit, more = jobs.MaxChildrenData / jobs.MaxData, 4
		p := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		w.create(jobs.Spec{Name: "child", Parent: p, Data: object(jobs.MaxData)})
		w.finish(p)
		// The others are stored as if they had ended: each check of a megabyte takes long.
		for range fit + more - 1 {
			w.ok(w.store.Update(w.Context(), func(ctx context.Context, tx jobstore.Tx) error {
				now, err := tx.Now(ctx)
				if err != nil {
					return err
				}
				return tx.Save(ctx, &jobs.Row{Job: jobs.Job{
					Name: "child", State: jobs.Finished, Priority: jobs.DefaultPriority, Parent: p, Data: object(jobs.MaxData),
					Created: now, Changed: now, NextRun: now, Attempt: 1,
				}, Run: 1})
			}))
		}
		w.finish(w.get("child").ID)
		h := w.get("parent")
		size := 0
		for i, c := range h.FinishedChildren {
			size += len(c.Data)
			if i < fit != (len(c.Data) == jobs.MaxData) {
				t.Errorf("child %d of %d has %d bytes", i, len(h.FinishedChildren), len(c.Data))
			}
			if j := w.job(c.ID); len(j.Data) != jobs.MaxData {
				t.Errorf("child %d has lost its data", i)
			}
		}
		if len(h.FinishedChildren) != fit+more || size > jobs.MaxChildrenData {
			t.Errorf("%d children with %d bytes", len(h.FinishedChildren), size)
		}
	})
}

func TestMock(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Mock: true, Repeat: "HOURLY"})
		w.none("a")
		out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "*", Mock: true}})
		w.ok(err)
		if len(out) != 1 || out[0].ID != id || out[0].Repeat != "" {
			w.Fatalf("%+v", out)
		}
		_, err = w.Create(w.Context(), jobs.Spec{Name: "c", Parent: id})
		w.is(err, jobs.ErrMockDiffers)
		w.ok(w.Update(w.Context(), jobs.Update{ID: id, Data: []byte("{}"), Repeat: task.Set("HOURLY")}))
		w.finish(id)
		w.state("", id)
	})
}
