package resultstoretest

import (
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// needsCheckpoints returns the reason to skip a case, or "" if the adapter promises Checkpoints.
func needsCheckpoints(h *Harness) string {
	return suite.Unless(h.Promises.Checkpoints, "the adapter does not promise Checkpoints")
}

// attempt returns an attempt of a task with this fencing token.
func attempt(id task.ID, generation, deliveries int) resultstore.Attempt {
	return resultstore.Attempt{ID: id, Generation: generation, Deliveries: deliveries}
}

// point returns a checkpoint with a text as its value.
func point(name, value string) resultstore.Checkpoint {
	return resultstore.Checkpoint{Name: name, ContentType: "text/plain", Value: []byte(value)}
}

// checkpoints opens a store that is a Checkpointer.
func (w *world) checkpoints() (resultstore.ResultStore, resultstore.Checkpointer) {
	w.Helper()
	s := w.Open()
	return s, suite.Offer[resultstore.Checkpointer](w, s)
}

// trySaveCheckpoint saves a checkpoint and returns the error. It fails the case if the error
// contains the secret.
func (w *world) trySaveCheckpoint(s resultstore.Checkpointer, a resultstore.Attempt, c resultstore.Checkpoint) error {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	return w.Clean(s.SaveCheckpoint(ctx, a, c))
}

// saveCheckpoints saves checkpoints and fails the case on an error.
func (w *world) saveCheckpoints(s resultstore.Checkpointer, a resultstore.Attempt, cs ...resultstore.Checkpoint) {
	w.Helper()
	for _, c := range cs {
		w.Must(w.trySaveCheckpoint(s, a, c), "SaveCheckpoint(%s (%d,%d), %.40q)", a.ID, a.Generation, a.Deliveries, c.Name)
	}
}

// wantCheckpoints loads the checkpoints by attempt a and reports a difference to want.
func (w *world) wantCheckpoints(s resultstore.Checkpointer, a resultstore.Attempt, when string, want ...resultstore.Checkpoint) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	got, err := s.LoadCheckpoints(ctx, a)
	w.Must(err, "LoadCheckpoints(%s (%d,%d)), %s", a.ID, a.Generation, a.Deliveries, when)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s (-want +loaded):\n%.2000s", when, diff)
	}
}

// staleAttempt expects ErrStale from both methods for attempt a.
func (w *world) staleAttempt(s resultstore.Checkpointer, a resultstore.Attempt, when string) {
	w.Helper()
	w.WantIs(w.trySaveCheckpoint(s, a, point("late", "late")), resultstore.ErrStale, "SaveCheckpoint of (%d,%d), %s", a.Generation, a.Deliveries, when)
	ctx, cancel := w.Ctx()
	defer cancel()
	_, err := s.LoadCheckpoints(ctx, a)
	w.WantIs(w.Clean(err), resultstore.ErrStale, "LoadCheckpoints of (%d,%d), %s", a.Generation, a.Deliveries, when)
}

// dropped returns r with DropCheckpoints.
func dropped(r resultstore.Record) resultstore.Record {
	r.DropCheckpoints = true
	return r
}
