package resultstoretest

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// token returns r with another state and fencing token. Its result names both, to tell the records
// of a case apart.
func token(r resultstore.Record, state task.State, generation, deliveries int) resultstore.Record {
	r.State, r.Generation, r.Deliveries = state, generation, deliveries
	r.Result = fmt.Appendf(nil, "%s-%d-%d", state, generation, deliveries)
	return r
}

// fenceCases returns the cases of fencing tokens: which record replaces which.
func fenceCases() []testCase {
	const started, retrying, awaiting, succeeded, failed = task.StateStarted, task.StateRetrying, task.StateAwaiting, task.StateSucceeded, task.StateFailed
	return []testCase{
		{
			Area: "fence", Name: "a newer token replaces",
			Explain: "A task is started, retried and started again, and ends with an answer from outside. Each attempt has a newer token and replaces the record of the one before, up to the final record.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				s := w.Open()
				base := w.succeeded("")
				for _, r := range []resultstore.Record{
					token(base, started, 0, 1), token(base, retrying, 0, 1), token(base, started, 1, 1), token(base, started, 1, 2),
					token(base, retrying, 1, 2), token(base, started, 2, 1), token(base, awaiting, 2, 1), token(base, succeeded, 2, 1),
				} {
					w.save(s, r)
					w.wantLoad(s, r, "after %s", show(r))
				}
			},
		},
		{
			Area: "fence", Name: "an older token is refused",
			Explain: "A record with an older token than the stored one returns ErrStale: it comes from an attempt that was suspended while its task went to another consumer. Tokens compare by Generation, then by Deliveries.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				kept := token(w.succeeded(""), retrying, 2, 3)
				w.save(a, kept)
				for _, r := range []resultstore.Record{
					token(kept, succeeded, 2, 2), token(kept, succeeded, 1, 9), token(kept, failed, 0, 3), token(kept, retrying, 1, 3), token(kept, started, 2, 2),
				} {
					w.WantIs(w.trySave(b, r), resultstore.ErrStale, "Save of %s over %s", show(r), show(kept))
					w.wantLoad(a, kept, "after a refused record")
				}
			},
		},
		{
			Area: "fence", Name: "a terminal record is never replaced",
			Explain: "A record with another token than a stored terminal record returns ErrStale, even with a newer one: a submitter that saw the result must not find a different one later.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				for _, state := range []task.State{succeeded, failed, task.StateRevoked, task.StateExpired} {
					kept := token(w.succeeded(""), state, 1, 2)
					w.save(a, kept)
					for _, r := range []resultstore.Record{
						token(kept, succeeded, 1, 3), token(kept, failed, 2, 1), token(kept, retrying, 3, 1), token(kept, started, 1, 3),
						token(kept, state, 1, 3), token(kept, state, 1, 1),
					} {
						w.WantIs(w.trySave(b, r), resultstore.ErrStale, "Save of %s over %s", show(r), show(kept))
						w.wantLoad(a, kept, "after a refused record")
					}
				}
			},
		},
		{
			Area: "fence", Name: "the same token does not undo a terminal record",
			Explain: "A terminal state is stored once and never replaced, not even by another state of the same attempt.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				s := w.Open()
				kept := token(w.succeeded(""), succeeded, 1, 2)
				w.save(s, kept)
				for _, state := range []task.State{started, retrying, failed, task.StateRevoked} {
					r := token(kept, state, 1, 2)
					if w.trySave(s, r) == nil {
						w.Errorf("Save of %s over %s reported success", show(r), show(kept))
					}
					w.wantLoad(s, kept, "after %s", show(r))
				}
			},
		},
		{
			Area: "fence", Name: "the same terminal record again",
			Explain: "Saving the same terminal record again returns nil and changes nothing: a consumer that lost the answer to its first Save repeats it and must be able to continue.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				for _, state := range []task.State{succeeded, failed} {
					kept := token(w.succeeded(""), state, 1, 2)
					w.save(a, kept, kept)
					w.save(b, kept)
					w.wantLoad(b, kept, "after the same record three times")
				}
			},
		},
		{
			Area: "fence", Name: "a new life replaces a failure",
			Explain: "A StateRequeued record of a newer generation replaces a failed or expired one: a requeued dead letter may still succeed, and its submitter must see that the task continues.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				for _, state := range []task.State{failed, task.StateExpired} {
					kept := token(w.succeeded(""), state, 1, 2)
					w.save(a, kept)
					reopened := token(kept, task.StateRequeued, 2, 0)
					w.save(b, reopened)
					w.wantLoad(a, reopened, "after a %s record was reopened", state)
					w.save(a, reopened)
					for _, r := range []resultstore.Record{token(kept, started, 2, 1), token(kept, retrying, 2, 1), token(kept, succeeded, 3, 1)} {
						w.save(a, r)
						w.wantLoad(b, r, "after %s of the new life", show(r))
					}
				}
			},
		},
		{
			Area: "fence", Name: "a new life needs a newer generation and a failure",
			Explain: "A StateRequeued record returns ErrStale if its generation is not newer or the task succeeded or was revoked: a final result must not disappear.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				refuse := func(kept, r resultstore.Record) {
					w.save(a, kept)
					w.WantIs(w.trySave(b, r), resultstore.ErrStale, "Save of %s over %s", show(r), show(kept))
					w.wantLoad(a, kept, "after a refused record")
				}
				for _, other := range [][2]int{{0, 0}, {1, 0}, {1, 2}, {1, 3}} {
					kept := token(w.succeeded(""), failed, 1, 2)
					refuse(kept, token(kept, task.StateRequeued, other[0], other[1]))
				}
				for _, state := range []task.State{succeeded, task.StateRevoked} {
					kept := token(w.succeeded(""), state, 1, 2)
					refuse(kept, token(kept, task.StateRequeued, 2, 0))
				}
			},
		},
		{
			Area: "fence", Name: "writers of the old life are refused",
			Explain: "After a task was requeued, every record of an attempt of its old life returns ErrStale.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				a, b := w.Open(), w.Open()
				base := w.succeeded("")
				reopened := token(base, task.StateRequeued, 2, 0)
				w.save(a, token(base, failed, 1, 1), reopened)
				for _, r := range []resultstore.Record{token(base, failed, 1, 1), token(base, succeeded, 1, 9), token(base, retrying, 1, 2), token(base, failed, 0, 5)} {
					w.WantIs(w.trySave(b, r), resultstore.ErrStale, "Save of %s over %s", show(r), show(reopened))
					w.wantLoad(a, reopened, "after a refused record")
				}
			},
		},
		{
			Area: "fence", Name: "any history",
			Explain: "For every order of records, only the rules of Save and Delete decide which record is stored and which is refused.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				stores := []resultstore.ResultStore{w.Open(), w.Open()}
				rapid.Check(w.TB, func(t *rapid.T) { checkHistory(w, t, stores) })
			},
		},
		{
			Area: "fence", Name: "exactly one terminal record wins",
			Explain: "Of many attempts that end at the same time in different processes, Save succeeds for one terminal record, and Load returns that record from then on.",
			Needs:   []need{needsRecords},
			Run: func(w *world) {
				stores := []resultstore.ResultStore{w.Open(), w.Open(), w.Open()}
				for range 20 {
					raceForOne(w, stores)
				}
			},
		},
	}
}

// model implements the rules of the port for one task.
type model struct{ kept *resultstore.Record }

// save stores r and returns false, or returns true if the rules refuse r. The same final record
// again is not refused and changes nothing.
func (m *model) save(r resultstore.Record) (stale bool) {
	switch {
	case m.kept == nil:
	case r.Older(m.kept):
		return true
	case m.kept.State.Terminal() && !r.Reopens(m.kept):
		return m.kept.Older(&r) || m.kept.State != r.State
	}
	m.kept = &r
	return false
}

// checkHistory saves and deletes random records of one task through random stores. After each
// step it compares the error and the loaded record with those of a model.
func checkHistory(w *world, t *rapid.T, stores []resultstore.ResultStore) {
	base, m := w.succeeded(""), model{}
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		s := rapid.SampledFrom(stores).Draw(t, "store")
		ctx, cancel := w.Ctx()
		if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
			if err := s.Delete(ctx, base.ID); err != nil {
				t.Fatalf("Delete: %v", w.Clean(err))
			}
			m.kept = nil
		} else {
			state := rapid.SampledFrom([]task.State{task.StateStarted, task.StateRetrying, task.StateAwaiting, task.StateRequeued, task.StateSucceeded, task.StateFailed, task.StateExpired}).Draw(t, "state")
			r := token(base, state, rapid.IntRange(0, 2).Draw(t, "generation"), rapid.IntRange(1, 3).Draw(t, "deliveries"))
			before := m.kept
			err := w.Clean(s.Save(ctx, r))
			switch stale := m.save(r); {
			case stale && !errors.Is(err, resultstore.ErrStale):
				t.Fatalf("Save of %s over %s returned %v, want ErrStale", show(r), show(*before), err)
			case !stale && err != nil:
				t.Fatalf("Save of %s returned %v", show(r), err)
			}
		}
		got, err := rapid.SampledFrom(stores).Draw(t, "reader").Load(ctx, base.ID)
		cancel()
		switch {
		case m.kept == nil && !errors.Is(err, resultstore.ErrNotFound):
			t.Fatalf("Load returned %v, want ErrNotFound", w.Clean(err))
		case m.kept != nil && err != nil:
			t.Fatalf("Load returned %v, want %s", w.Clean(err), show(*m.kept))
		case m.kept != nil:
			if diff := diffRecord(*m.kept, got); diff != "" {
				t.Fatalf("the wrong record is kept (-want +got):\n%s", diff)
			}
		}
	}
}

// raceForOne saves the records of several attempts with different tokens at the same time. It
// checks that exactly one terminal record wins and is loaded.
func raceForOne(w *world, stores []resultstore.ResultStore) {
	const attempts = 12
	type end struct {
		r   resultstore.Record
		err error
	}
	base := w.succeeded("")
	start, done := make(chan struct{}), make(chan end, attempts)
	for i := range attempts {
		// The newest token belongs to a terminal record, so that a winner exists.
		state := []task.State{task.StateRetrying, task.StateFailed, task.StateSucceeded}[i%3]
		r := token(base, state, i/4, 1+i%4)
		go func() {
			ctx, cancel := w.Ctx()
			defer cancel()
			<-start
			done <- end{r, stores[i%len(stores)].Save(ctx, r)}
		}()
	}
	close(start)
	var winners []resultstore.Record
	for range attempts {
		e := suite.Ends(w.World, done, "Save beside others")
		switch {
		case e.err == nil && e.r.State.Terminal():
			winners = append(winners, e.r)
		case e.err != nil && !errors.Is(e.err, resultstore.ErrStale):
			w.Errorf("Save of %s: %v, want nil or ErrStale", show(e.r), w.Clean(e.err))
		}
	}
	if len(winners) != 1 {
		names := make([]string, len(winners))
		for i, r := range winners {
			names[i] = show(r)
		}
		w.Fatalf("%d terminal records of one task were saved with success, want exactly one: %q", len(winners), names)
	}
	for _, s := range stores {
		w.wantLoad(s, winners[0], "after a race")
	}
}
