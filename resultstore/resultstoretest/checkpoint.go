package resultstoretest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// checkpointCases returns the cases of a Checkpointer.
func checkpointCases() []testCase {
	needs := []need{needsCheckpoints}
	return []testCase{
		{
			Area: "checkpoint", Name: "the interface is there when it is promised",
			Explain: "A store that implements Checkpointer also promises Checkpoints, so that it is tested.",
			Run: func(w *world) {
				if _, ok := capability.As[resultstore.Checkpointer](w.Open()); ok != w.h.Promises.Checkpoints {
					w.Errorf("the store is a Checkpointer: %v; promised is %v", ok, w.h.Promises.Checkpoints)
				}
			},
		},
		{
			Area: "checkpoint", Name: "stored and loaded", Needs: needs,
			Explain: "LoadCheckpoints returns all checkpoints of the task in the order of their names, and none of another task. A second value replaces the first.",
			Run: func(w *world) {
				_, a := w.checkpoints()
				s, b := w.checkpoints()
				id, other := w.id(), w.id()
				w.wantCheckpoints(b, attempt(id, 0, 1), "a new task")
				bare := resultstore.Checkpoint{Name: "a"}
				data := resultstore.Checkpoint{Name: "c", ContentType: "application/octet-stream", Value: []byte("\x00\xff\n{}'\"")}
				w.saveCheckpoints(a, attempt(id, 0, 1), point("b", "first"), data, bare)
				w.saveCheckpoints(a, attempt(other, 0, 1), point("b", "another task"))
				w.wantCheckpoints(b, attempt(id, 0, 1), "three checkpoints", bare, point("b", "first"), data)
				w.saveCheckpoints(b, attempt(id, 0, 1), point("b", "second"), point("b", "second"))
				w.wantCheckpoints(a, attempt(id, 0, 2), "a replaced value", bare, point("b", "second"), data)
				w.wantNone(s, id, "the checkpoints are no record")
			},
		},
		{
			Area: "checkpoint", Name: "the caller keeps its bytes", Needs: needs,
			Explain: "A store keeps no reference to Value after SaveCheckpoint, and returned values belong to the caller.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				id, value := w.id(), []byte("kept")
				w.saveCheckpoints(s, attempt(id, 0, 1), resultstore.Checkpoint{Name: "a", Value: value})
				copy(value, "lost")
				ctx, cancel := w.Ctx()
				defer cancel()
				for range 2 {
					got, err := s.LoadCheckpoints(ctx, attempt(id, 0, 1))
					w.Must(err, "LoadCheckpoints")
					if len(got) != 1 || string(got[0].Value) != "kept" {
						w.Fatalf("loaded %+v, want the value kept", got)
					}
					copy(got[0].Value, "lost")
				}
			},
		},
		{
			Area: "checkpoint", Name: "a newer attempt goes on", Needs: needs,
			Explain: "Each attempt finds what the earlier ones have stored, adds to it and may replace it.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				id := w.id()
				var want []resultstore.Checkpoint
				for i, token := range [][2]int{{0, 1}, {0, 2}, {1, 1}, {2, 1}, {2, 4}, {1 << 20, 1}} {
					a := attempt(id, token[0], token[1])
					w.wantCheckpoints(s, a, fmt.Sprint("attempt ", i), want...)
					c := point(fmt.Sprint("step ", i), fmt.Sprint("of attempt ", i))
					w.saveCheckpoints(s, a, c, point("a cursor", fmt.Sprint(i)))
					if i == 0 {
						want = append(want, point("a cursor", ""))
					}
					want[0] = point("a cursor", fmt.Sprint(i))
					want = append(want, c)
				}
			},
		},
		{
			Area: "checkpoint", Name: "a stale attempt is refused", Needs: needs,
			Explain: "After a newer attempt has saved or only loaded checkpoints, both methods return ErrStale for an older one: it would store a step that the newer attempt repeats.",
			Run: func(w *world) {
				_, a := w.checkpoints()
				_, b := w.checkpoints()
				saved, loaded, empty := w.id(), w.id(), w.id()
				w.saveCheckpoints(a, attempt(saved, 1, 2), point("a", "1"))
				w.saveCheckpoints(a, attempt(loaded, 0, 1), point("a", "1"))
				w.wantCheckpoints(a, attempt(loaded, 1, 2), "a load of a newer attempt", point("a", "1"))
				w.wantCheckpoints(a, attempt(empty, 1, 2), "a load of a task without checkpoints")
				for _, old := range [][2]int{{1, 1}, {0, 1}, {0, 9}} {
					w.staleAttempt(b, attempt(saved, old[0], old[1]), "after a newer attempt has saved")
					w.staleAttempt(b, attempt(loaded, old[0], old[1]), "after a newer attempt has loaded")
					w.staleAttempt(b, attempt(empty, old[0], old[1]), "after a newer attempt has found none")
				}
				w.wantCheckpoints(b, attempt(saved, 1, 2), "after the refusals", point("a", "1"))
				w.wantCheckpoints(b, attempt(empty, 1, 2), "after the refusals")
			},
		},
		{
			Area: "checkpoint", Name: "a newer record refuses", Needs: needs,
			Explain: "Both methods return ErrStale for an attempt that is older than the record of the task. A record of the same or an older attempt that is not terminal changes nothing.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				r := token(w.succeeded(""), task.StateRetrying, 1, 2)
				w.saveCheckpoints(s, attempt(r.ID, 0, 1), point("a", "1"))
				w.save(st, r)
				w.staleAttempt(s, attempt(r.ID, 1, 1), "after a record of (1,2)")
				w.staleAttempt(s, attempt(r.ID, 0, 1), "after a record of (1,2)")
				w.saveCheckpoints(s, attempt(r.ID, 1, 2), point("b", "2"))
				w.saveCheckpoints(s, attempt(r.ID, 2, 1), point("c", "3"))
				w.wantCheckpoints(s, attempt(r.ID, 2, 1), "attempts that are not older", point("a", "1"), point("b", "2"), point("c", "3"))
				w.wantLoad(st, r, "the record, after checkpoints")
			},
		},
		{
			Area: "checkpoint", Name: "a final record refuses", Needs: needs,
			Explain: "Both methods return ErrStale for every attempt of a task whose record is terminal.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				for _, state := range []task.State{task.StateSucceeded, task.StateFailed, task.StateRevoked, task.StateExpired} {
					r := token(w.succeeded(""), state, 1, 2)
					w.saveCheckpoints(s, attempt(r.ID, 1, 2), point("a", "1"))
					w.save(st, r)
					for _, at := range [][2]int{{1, 1}, {1, 2}, {1, 3}, {2, 1}} {
						w.staleAttempt(s, attempt(r.ID, at[0], at[1]), "after "+show(r))
					}
				}
			},
		},
		{
			Area: "checkpoint", Name: "a failure keeps them", Needs: needs,
			Explain: "Records without DropCheckpoints keep the checkpoints, so that a requeued dead letter goes on. Attempts of its old life are refused.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				r := token(w.succeeded(""), task.StateRetrying, 0, 1)
				failed := token(r, task.StateFailed, 1, 1)
				w.saveCheckpoints(s, attempt(r.ID, 0, 1), point("a", "1"))
				w.save(st, r)
				w.saveCheckpoints(s, attempt(r.ID, 1, 1), point("b", "2"))
				w.save(st, failed, failed, token(r, task.StateRequeued, 5, 0))
				w.staleAttempt(s, attempt(r.ID, 1, 1), "after the task was requeued")
				w.wantCheckpoints(s, attempt(r.ID, 5, 1), "after the task was requeued", point("a", "1"), point("b", "2"))
				w.saveCheckpoints(s, attempt(r.ID, 5, 1), point("c", "3"))
			},
		},
		{
			Area: "checkpoint", Name: "deleted with the record's save", Needs: needs,
			Explain: "Save of a record with DropCheckpoints deletes the checkpoints of its task and of no other, also if the same terminal record is stored already. Load does not return DropCheckpoints.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				other := w.id()
				w.saveCheckpoints(s, attempt(other, 0, 1), point("a", "another task"))
				for _, again := range []bool{false, true} {
					r := token(w.succeeded(""), task.StateFailed, 1, 1)
					w.saveCheckpoints(s, attempt(r.ID, 1, 1), point("a", "1"), point("b", "2"))
					if again {
						w.save(st, r)
					}
					w.save(st, dropped(r))
					w.wantLoad(st, r, "the record that dropped the checkpoints")
					w.save(st, token(r, task.StateRequeued, 2, 0))
					w.wantCheckpoints(s, attempt(r.ID, 2, 1), "after the checkpoints were dropped")
				}
				w.wantCheckpoints(s, attempt(other, 0, 1), "after those of other tasks were dropped", point("a", "another task"))
			},
		},
		{
			Area: "checkpoint", Name: "a refused record deletes none", Needs: needs,
			Explain: "Save that returns an error leaves the checkpoints: the attempt that wrote the stored record still needs them.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				r := token(w.succeeded(""), task.StateRetrying, 2, 1)
				w.saveCheckpoints(s, attempt(r.ID, 2, 1), point("a", "1"))
				w.save(st, r)
				w.WantIs(w.trySave(st, dropped(token(r, task.StateSucceeded, 1, 1))), resultstore.ErrStale, "Save of a stale record")
				w.wantCheckpoints(s, attempt(r.ID, 2, 1), "after a refused record", point("a", "1"))
			},
		},
		{
			Area: "checkpoint", Name: "deleted with a batch", Needs: []need{needsCheckpoints, needsBatches},
			Explain: "SaveBatch deletes the checkpoints of the records that it stores with DropCheckpoints, and no others.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				var rs []resultstore.Record
				for i := range 6 {
					r := token(w.succeeded(""), task.StateFailed, 1, 1)
					w.saveCheckpoints(s, attempt(r.ID, 1, 1), point("a", "1"))
					switch i {
					case 0, 3:
						r = dropped(r)
					case 4: // stored before without its checkpoints dropped
						w.save(st, r)
						r = dropped(r)
					case 5: // refused: the stored record is newer
						w.save(st, token(r, task.StateFailed, 1, 2))
						r = dropped(r)
					}
					rs = append(rs, r)
				}
				errs := w.saveAll(st, rs...)
				w.saved(errs[:5], "SaveBatch")
				w.WantIs(errs[5], resultstore.ErrStale, "the stale record of a batch")
				for i, r := range rs {
					r.DropCheckpoints = false
					w.save(st, token(r, task.StateRequeued, 2, 0))
					var want []resultstore.Checkpoint
					if i == 1 || i == 2 || i == 5 {
						want = []resultstore.Checkpoint{point("a", "1")}
					}
					w.wantCheckpoints(s, attempt(r.ID, 2, 1), fmt.Sprint("record ", i, " of a batch"), want...)
				}
			},
		},
		{
			Area: "checkpoint", Name: "deleted with a transaction", Needs: []need{needsCheckpoints, needsTransactions},
			Explain: "SaveTx with DropCheckpoints deletes the checkpoints if and only if the caller commits.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				for _, commit := range []bool{false, true} {
					r := token(w.succeeded(""), task.StateFailed, 1, 1)
					w.saveCheckpoints(s, attempt(r.ID, 1, 1), point("a", "1"))
					t := w.h.Begin(w.TB)
					w.Must(w.saveTx(st, t.Tx, dropped(r)), "SaveTx")
					if !commit {
						w.Must(t.Rollback(), "Rollback")
						w.wantCheckpoints(s, attempt(r.ID, 1, 1), "after a rollback", point("a", "1"))
						continue
					}
					w.Must(t.Commit(), "Commit")
					w.save(st, token(r, task.StateRequeued, 2, 0))
					w.wantCheckpoints(s, attempt(r.ID, 2, 1), "after a commit")
				}
			},
		},
		{
			Area: "checkpoint", Name: "deleted with the record", Needs: needs,
			Explain: "Delete removes the checkpoints of the task, with and without a record.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				r := token(w.succeeded(""), task.StateRetrying, 1, 1)
				none := w.id()
				w.saveCheckpoints(s, attempt(r.ID, 1, 1), point("a", "1"))
				w.saveCheckpoints(s, attempt(none, 1, 1), point("a", "1"))
				w.save(st, r)
				w.remove(st, r.ID)
				w.remove(st, none)
				w.wantCheckpoints(s, attempt(r.ID, 0, 1), "after Delete of a record")
				w.wantCheckpoints(s, attempt(none, 0, 1), "after Delete without a record")
			},
		},
		{
			Area: "checkpoint", Name: "the limits", Needs: needs,
			Explain: "More than MaxCheckpoints names or MaxCheckpointBytes return ErrTooLarge and change nothing, also when a stored value becomes larger.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				many, large := attempt(w.id(), 0, 1), attempt(w.id(), 0, 1)
				var want []resultstore.Checkpoint
				for i := range resultstore.MaxCheckpoints {
					want = append(want, point(fmt.Sprintf("step %02d", i), "1"))
				}
				w.saveCheckpoints(s, many, want...)
				w.WantIs(w.trySaveCheckpoint(s, many, point("one more", "")), resultstore.ErrTooLarge, "one name too many")
				want[5] = point(want[5].Name, "2")
				w.saveCheckpoints(s, many, want[5])
				w.wantCheckpoints(s, many, "the largest number of names", want...)

				fill := func(name string, size int) resultstore.Checkpoint {
					c := resultstore.Checkpoint{Name: name}
					c.Value = bytes.Repeat([]byte{'x'}, size-c.Size())
					return c
				}
				small := point("a", "1")
				most := fill("b", resultstore.MaxCheckpointBytes-small.Size())
				w.saveCheckpoints(s, large, small, most)
				w.WantIs(w.trySaveCheckpoint(s, large, point("a", "22")), resultstore.ErrTooLarge, "one byte too many")
				w.WantIs(w.trySaveCheckpoint(s, large, fill("c", 2)), resultstore.ErrTooLarge, "another name")
				w.WantIs(w.trySaveCheckpoint(s, large, fill("c", resultstore.MaxCheckpointBytes+1)), resultstore.ErrTooLarge, "a value that is too large alone")
				w.wantCheckpoints(s, large, "the largest size", small, most)
				w.saveCheckpoints(s, large, point("b", "2"), point("c", "3"))
				w.wantCheckpoints(s, large, "a smaller value in place of a large one", small, point("b", "2"), point("c", "3"))
			},
		},
		{
			Area: "checkpoint", Name: "any text is a name", Needs: needs,
			Explain: "A name is 1 to 255 bytes of UTF-8 without control characters. Any other one returns ErrMalformed and changes nothing.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				a := attempt(w.id(), 0, 1)
				odd := []string{
					" ", "\"", "$1", "%", "'", "*", ".", "..", "/", ":", ">", "A", "\\", "a", "a ", "a.b",
					strings.Repeat("k", resultstore.MaxCheckpointName), "size", "token", "{a}", "ä", "😀",
				}
				var want []resultstore.Checkpoint
				for _, name := range odd {
					want = append(want, point(name, name))
				}
				w.saveCheckpoints(s, a, want...)
				for _, bad := range []string{"", "\x00", "a\n", "\x7f", "\xff", strings.Repeat("k", resultstore.MaxCheckpointName+1)} {
					w.WantIs(w.trySaveCheckpoint(s, a, point(bad, "")), resultstore.ErrMalformed, "the name %.40q", bad)
				}
				w.WantIs(w.trySaveCheckpoint(s, a, resultstore.Checkpoint{Name: "x", ContentType: "\xff"}), resultstore.ErrMalformed, "a bad content type")
				w.WantIs(w.trySaveCheckpoint(s, attempt("not an id", 0, 1), point("a", "")), task.ErrBadID, "a bad id")
				w.wantCheckpoints(s, a, "any names", want...)
			},
		},
		{
			Area: "checkpoint", Name: "they expire", Needs: []need{needsCheckpoints, needsTTL},
			Explain: "TTL is the shortest time for which all checkpoints are kept after the last call. Then the task has none, and the expired token refuses no attempt. The end of the record's time does not matter.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				short := func(id task.ID) resultstore.Attempt {
					a := attempt(id, 5, 1)
					a.TTL = w.h.Promises.TTL
					return a
				}
				stays, renewed, loaded, gone := w.id(), w.id(), w.id(), w.id()
				r := with(token(w.succeeded(""), task.StateSucceeded, 0, 1), func(r *resultstore.Record) { r.ID = stays; r.TTL = w.h.Promises.TTL })
				w.saveCheckpoints(s, attempt(stays, 0, 1), point("a", "1"))
				w.saveCheckpoints(s, short(renewed), point("a", "1"))
				w.saveCheckpoints(s, attempt(renewed, 5, 1), point("b", "2"))
				w.saveCheckpoints(s, short(loaded), point("a", "1"))
				w.wantCheckpoints(s, attempt(loaded, 5, 1), "a load", point("a", "1"))
				w.save(st, r)
				before := time.Now()
				w.saveCheckpoints(s, short(gone), point("a", "1"))
				w.Until("the checkpoint expires", func() bool { return w.trySaveCheckpoint(s, attempt(gone, 0, 1), point("b", "2")) == nil })
				if kept := time.Since(before); kept < w.h.Promises.TTL {
					w.Errorf("the checkpoint expired after %v, its TTL was %v", kept, w.h.Promises.TTL)
				}
				w.wantCheckpoints(s, attempt(gone, 0, 1), "after an earlier one expired", point("b", "2"))
				w.gone(st, stays, time.Time{}, time.Now().Add(w.h.Promises.TTL+w.Slack))
				w.wantCheckpoints(s, attempt(stays, 0, 1), "after its record expired", point("a", "1"))
				w.wantCheckpoints(s, attempt(renewed, 5, 1), "with the time of the last save", point("a", "1"), point("b", "2"))
				w.wantCheckpoints(s, attempt(loaded, 5, 1), "with the time of the last load", point("a", "1"))
			},
		},
		{
			Area: "checkpoint", Name: "many at a time", Needs: needs,
			Explain: "SaveCheckpoint is one atomic step: of concurrent calls of one attempt all are stored.",
			Run: func(w *world) {
				const n = 12
				_, a := w.checkpoints()
				_, b := w.checkpoints()
				id := w.id()
				var want []resultstore.Checkpoint
				var wg sync.WaitGroup
				for i := range n {
					c := point(fmt.Sprintf("step %02d", i), "1")
					want = append(want, c)
					wg.Go(func() {
						if err := w.trySaveCheckpoint([]resultstore.Checkpointer{a, b}[i%2], attempt(id, 0, 1), c); err != nil {
							w.Errorf("SaveCheckpoint %d: %v", i, err)
						}
					})
				}
				wg.Wait()
				w.wantCheckpoints(a, attempt(id, 0, 1), "after all", want...)
			},
		},
		{
			Area: "checkpoint", Name: "a lost connection", Needs: []need{needsCheckpoints, needsSever},
			Explain: "A stored checkpoint remains after connections were lost, and a repeated SaveCheckpoint is stored once.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				a := attempt(w.id(), 0, 1)
				w.saveCheckpoints(s, a, point("a", "1"))
				w.h.Sever(w, st)
				w.Until("SaveCheckpoint through a lost connection", func() bool {
					ctx, cancel := context.WithTimeout(context.Background(), w.Patience/4)
					defer cancel()
					return w.Clean(s.SaveCheckpoint(ctx, a, point("b", "2"))) == nil
				})
				w.wantCheckpoints(s, a, "after a lost connection", point("a", "1"), point("b", "2"))
			},
		},
		{
			Area: "checkpoint", Name: "a restart", Needs: []need{needsCheckpoints, needsDurable, needsRestart},
			Explain: "With Durable a checkpoint is stored as safely as a record.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				a := attempt(w.id(), 0, 1)
				w.saveCheckpoints(s, a, point("a", "1"))
				w.h.Restart(w)
				_, s = w.checkpoints()
				w.wantCheckpoints(s, a, "after a restart", point("a", "1"))
			},
		},
		{
			Area: "checkpoint", Name: "the server is away", Needs: []need{needsCheckpoints, needsDown},
			Explain: "A step that is impossible until ctx ends returns ErrUnavailable: the handler must not go on as if it was stored.",
			Run: func(w *world) {
				_, s := w.checkpoints()
				a := attempt(w.id(), 0, 1)
				w.saveCheckpoints(s, a, point("a", "1"))
				up := w.h.Down(w)
				ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				w.WantIs(w.Clean(s.SaveCheckpoint(ctx, a, point("b", "2"))), resultstore.ErrUnavailable, "SaveCheckpoint while the server is away")
				ctx, cancel = context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				_, err := s.LoadCheckpoints(ctx, a)
				w.WantIs(w.Clean(err), resultstore.ErrUnavailable, "LoadCheckpoints while the server is away")
				up()
			},
		},
		{
			Area: "checkpoint", Name: "nothing after Close", Needs: needs,
			Explain: "A closed store returns ErrClosed, and an ended context its error.",
			Run: func(w *world) {
				st, s := w.checkpoints()
				ctx, cancel := w.Ctx()
				defer cancel()
				ended, end := context.WithCancel(ctx)
				end()
				a := attempt(w.id(), 0, 1)
				w.WantIs(s.SaveCheckpoint(ended, a, point("a", "1")), context.Canceled, "SaveCheckpoint with an ended context")
				_, err := s.LoadCheckpoints(ended, a)
				w.WantIs(err, context.Canceled, "LoadCheckpoints with an ended context")
				w.Must(st.Close(ctx), "Close")
				w.WantIs(s.SaveCheckpoint(ctx, a, point("a", "1")), resultstore.ErrClosed, "SaveCheckpoint after Close")
				_, err = s.LoadCheckpoints(ctx, a)
				w.WantIs(err, resultstore.ErrClosed, "LoadCheckpoints after Close")
			},
		},
	}
}
