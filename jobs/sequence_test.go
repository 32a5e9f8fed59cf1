package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// line creates n jobs named "s" with the key "k".
func (w *world) line(n int) []jobs.ID {
	w.Helper()
	ids := make([]jobs.ID, n)
	for i := range ids {
		ids[i] = w.create(jobs.Spec{Name: "s", SequenceKey: "k"})
	}
	return ids
}

// TestSequenceRunsOneAtATime shows that jobs of a sequence run one after the other.
// Promises: B61, B62, B64.
func TestSequenceRunsOneAtATime(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		other := w.create(jobs.Spec{Name: "other", SequenceKey: "k2"})
		ids := w.line(4)
		w.state(jobs.Queued, other, ids[0])
		w.state(jobs.Waiting, ids[1:]...)
		for i, end := range []func(id jobs.ID) error{
			func(id jobs.ID) error { return w.Finish(w.Context(), jobs.Finish{ID: id}) },
			func(id jobs.ID) error { return w.Fail(w.Context(), jobs.Fail{ID: id}) },
			func(id jobs.ID) error { // Delete requires that the job does not run
				w.ok(w.Retry(w.Context(), jobs.Retry{ID: id}))
				return w.Delete(w.Context(), id)
			},
		} {
			if h := w.get("s"); h.ID != ids[i] {
				w.Fatalf("job %d goes first, not %d", h.ID, ids[i])
			}
			w.none("s")
			w.state(jobs.Waiting, ids[i+1:]...)
			w.ok(end(ids[i]))
			w.state(jobs.Queued, ids[i+1])
			w.state(jobs.Waiting, ids[i+2:]...)
		}
		w.get("other")
	})
}

// TestSequenceBugs shows that known errors of Bedrock's sequences do not occur.
// Promises: B64.
func TestSequenceBugs(t *testing.T) {
	t.Parallel()
	t.Run("deleting one that waits promotes none", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(w *world) {
			ids := w.line(3)
			w.get("s")
			w.ok(w.Delete(w.Context(), ids[1]))
			w.state(jobs.Running, ids[0])
			w.state(jobs.Waiting, ids[2])
			w.finish(ids[0])
			w.state(jobs.Queued, ids[2])
		})
	})
	t.Run("what has failed promotes once", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(w *world) {
			ids := w.line(3)
			w.get("s")
			w.ok(w.Fail(w.Context(), jobs.Fail{ID: ids[0]}))
			w.state(jobs.Queued, ids[1])
			w.is(w.Fail(w.Context(), jobs.Fail{ID: ids[0]}), jobs.ErrNotRunning)
			w.ok(w.Delete(w.Context(), ids[0]))
			w.state(jobs.Queued, ids[1])
			w.state(jobs.Waiting, ids[2])
		})
	})
	t.Run("the order within a moment is that of creation", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(w *world) {
			specs := make([]jobs.Spec, 20)
			for i := range specs {
				specs[i] = jobs.Spec{Name: "s", SequenceKey: "k", Data: fmt.Appendf(nil, `{"n":%d}`, i), Priority: task.Set(-i)}
			}
			all, err := w.CreateAll(w.Context(), specs)
			w.ok(err)
			for i := range specs {
				h := w.get("s")
				if h.ID != all[i].ID || string(h.Data) != fmt.Sprintf(`{"n":%d}`, i) {
					w.Fatalf("%d: %+v", i, h)
				}
				w.finish(h.ID)
			}
		})
	})
	t.Run("no repeat and no parent with a key", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(w *world) {
			p := w.bring(jobs.Running)
			for _, spec := range []jobs.Spec{{Repeat: "HOURLY"}, {Parent: p}} {
				spec.Name, spec.SequenceKey = "s", "k"
				_, err := w.Create(w.Context(), spec)
				w.bad(err, "sequenceKey")
			}
			id := w.line(1)[0]
			w.bad(w.Update(w.Context(), jobs.Update{ID: id, Data: []byte("{}"), Repeat: task.Set("HOURLY")}), "repeat")
			w.ok(w.Update(w.Context(), jobs.Update{ID: id, Data: []byte("{}"), Repeat: task.Set("")}))
			_, err := w.Create(w.Context(), jobs.Spec{Name: "s", Unique: true, Repeat: "HOURLY", Data: []byte(`{"x":1}`)})
			w.bad(err, "repeat")
			w.data(id, "{}")
		})
	})
	t.Run("a unique job that is there has the key", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(w *world) {
			w.line(1)
			id := w.create(jobs.Spec{Name: "u", SequenceKey: "k", Unique: true})
			w.state(jobs.Waiting, id)
			if again := w.create(jobs.Spec{Name: "u", SequenceKey: "k", Unique: true}); again != id {
				w.Fatalf("job %d, not %d", again, id)
			}
			for _, key := range []string{"other"} {
				_, err := w.Create(w.Context(), jobs.Spec{Name: "u", SequenceKey: key, Unique: true})
				w.bad(err, "sequenceKey")
			}
			w.create(jobs.Spec{Name: "free"})
			_, err := w.Create(w.Context(), jobs.Spec{Name: "free", SequenceKey: "k", Unique: true})
			w.bad(err, "sequenceKey")
		})
	})
}

func TestSequenceKeepsTheTurn(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ids := w.line(3)
		w.get("s")
		w.ok(w.Retry(w.Context(), jobs.Retry{ID: ids[0], Delay: time.Hour}))
		w.state(jobs.Queued, ids[0])
		w.state(jobs.Waiting, ids[1:]...)
		w.none("s")
		time.Sleep(time.Hour)
		w.get("s")
		w.ok(w.Requeue(w.Context(), ids[:2], ""))
		w.state(jobs.Queued, ids[0])
		w.state(jobs.Waiting, ids[1:]...)
		h := w.get("s")
		w.ok(w.GiveBack(w.Context(), h))
		w.state(jobs.Queued, ids[0])
		w.state(jobs.Waiting, ids[1:]...)

		// A requeued job comes before younger ones.
		w.get("s")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: ids[0]}))
		w.state(jobs.Queued, ids[1])
		w.ok(w.Requeue(w.Context(), ids[:1], ""))
		w.state(jobs.Waiting, ids[0], ids[2])
		w.get("s")
		w.finish(ids[1])
		w.state(jobs.Queued, ids[0])
		w.state(jobs.Waiting, ids[2])
	})
}

// TestSequenceOfParents shows that a parent that waits for its children blocks its sequence.
func TestSequenceOfParents(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ids := w.line(2)
		w.get("s")
		child := w.create(jobs.Spec{Name: "child", Parent: ids[0]})
		w.finish(ids[0])
		w.state(jobs.Paused, ids[0])
		w.state(jobs.Waiting, ids[1])
		w.state(jobs.Waiting, w.line(1)...)
		w.get("child")
		w.finish(child)
		w.state(jobs.Queued, ids[0])
		w.state(jobs.Waiting, ids[1])
		w.get("s")
		w.finish(ids[0])
		w.state("", ids[0], child)
		w.state(jobs.Queued, ids[1])
	})
}

// TestSequenceAfterTenRepetitions shows that a job that fails after ten claims lets the next job of
// its sequence start.
func TestSequenceAfterTenRepetitions(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "s", SequenceKey: "k", RetryAfter: "+1 MINUTE"})
		next := w.create(jobs.Spec{Name: "next", SequenceKey: "k"})
		for range 10 {
			w.get("s")
			w.state(jobs.Waiting, next)
			time.Sleep(time.Minute)
		}
		if h := w.get("s"); !h.GivenUp || h.ID != id {
			w.Fatalf("%+v", h)
		}
		w.state(jobs.Failed, id)
		w.state(jobs.Queued, next)
	})
}
