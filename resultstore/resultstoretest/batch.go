package resultstoretest

import (
	"bytes"
	"context"
	"errors"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// needsBatches returns the reason to skip a case, or "" if the adapter promises Batches.
func needsBatches(h *Harness) string {
	return suite.Unless(h.Promises.Batches, "the adapter does not promise Batches")
}

// saveBatch calls SaveBatch and returns the outcomes. It fails the case if s does not implement
// BatchSaver, if the number of outcomes is wrong, or if an error contains the secret.
func (w *world) saveBatch(ctx context.Context, s resultstore.ResultStore, rs ...resultstore.Record) []error {
	w.Helper()
	errs := suite.Offer[resultstore.BatchSaver](w, s).SaveBatch(ctx, rs)
	if len(errs) != len(rs) {
		w.Fatalf("SaveBatch of %d records returned %d outcomes", len(rs), len(errs))
	}
	for _, err := range errs {
		_ = w.Clean(err) // reports the secret
	}
	return errs
}

// saveAll saves a batch as a consumer does: with Save, where SaveBatch returns an error. It returns
// the outcomes of Save.
func (w *world) saveAll(s resultstore.ResultStore, rs ...resultstore.Record) []error {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	errs := w.saveBatch(ctx, s, rs...)
	for i, err := range errs {
		if err != nil {
			errs[i] = w.trySave(s, rs[i])
		}
	}
	return errs
}

// saved fails the case for each outcome that is an error.
func (w *world) saved(errs []error, what string) {
	w.Helper()
	for i, err := range errs {
		if err != nil {
			w.Errorf("%s: record %d of %d: %v", what, i, len(errs), err)
		}
	}
}

// batchCases returns the cases of SaveBatch.
func batchCases() []testCase {
	return []testCase{
		{
			Area: "batch", Name: "the interface is there when it is promised",
			Explain: "A store that implements BatchSaver also promises Batches, so that it is tested.",
			Run: func(w *world) {
				if _, got := capability.As[resultstore.BatchSaver](w.Open()); got != w.h.Promises.Batches {
					w.Errorf("the store is a BatchSaver: %v, promised is %v", got, w.h.Promises.Batches)
				}
			},
		},
		{
			Area: "batch", Name: "many records", Needs: []need{needsBatches},
			Explain: "SaveBatch saves each record as Save does: it is loaded by other processes, and its submitter is notified. A batch may be larger than what the store sends at once. An empty batch does nothing.",
			Run: func(w *world) {
				s := w.Open()
				streams := map[string]resultstore.Notifications{}
				for _, name := range []string{"one", "two"} {
					if w.h.Promises.Notify {
						streams[w.node(name)] = w.notify(w.Open(), w.node(name))
					}
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				w.saved(w.saveBatch(ctx, s), "an empty batch")
				var rs []resultstore.Record
				want := map[task.ID]resultstore.Record{}
				for i := range 1500 {
					r := w.succeeded(w.node([]string{"one", "two"}[i%2]))
					r.Result = bytes.Repeat([]byte{byte(i)}, i)
					rs = append(rs, r)
					want[r.ID] = r
				}
				w.saved(w.saveBatch(ctx, s, rs...), "the batch")
				if other := w.Open(); !w.h.Promises.RepliesOnly {
					for i := 0; i < len(rs); i += 100 {
						w.wantLoad(other, rs[i], "record %d", i)
					}
				}
				for node, stream := range streams {
					for range len(rs) / 2 {
						got := w.receive(stream)
						if diff := diffRecord(want[got.ID], got); diff != "" || got.ReplyTo != node {
							w.Fatalf("the stream of %s has received (-saved +received):\n%s", node, diff)
						}
						delete(want, got.ID)
					}
				}
				if len(streams) > 0 && len(want) > 0 {
					w.Errorf("%d records were not received", len(want))
				}
			},
		},
		{
			Area: "batch", Name: "one outcome for each record", Needs: []need{needsBatches},
			Explain: "A record that cannot be saved has an error at its position, and Save tells the reason. The records beside it are saved.",
			Run: func(w *world) {
				s := w.Open()
				node := w.node("n")
				w.listen(w.Open(), node)
				bad := func(change func(r *resultstore.Record)) resultstore.Record { return with(w.succeeded(node), change) }
				rs := []resultstore.Record{
					w.succeeded(node),
					bad(func(r *resultstore.Record) { r.ID = "" }),
					bad(func(r *resultstore.Record) { r.State = "UNHEARD" }),
					w.succeeded(node),
				}
				want := []error{nil, task.ErrBadID, resultstore.ErrMalformed, nil}
				if most := w.h.Promises.MaxResult; most > 0 {
					rs = append(rs, bad(func(r *resultstore.Record) { r.Result = make([]byte, most+1) }))
					want = append(want, resultstore.ErrTooLarge)
				}
				if !w.h.Promises.RepliesOnly {
					stale := w.succeeded(node)
					w.save(s, with(stale, func(r *resultstore.Record) { r.Generation = 1 }))
					rs, want = append(rs, stale), append(want, resultstore.ErrStale)
				}
				rs, want = append(rs, w.succeeded(node)), append(want, nil)
				ctx, cancel := w.Ctx()
				defer cancel()
				for i, err := range w.saveBatch(ctx, s, rs...) {
					if (err == nil) != (want[i] == nil) {
						w.Errorf("record %d: the outcome is %v, want one for %v", i, err, want[i])
					}
					if want[i] != nil {
						w.WantIs(w.trySave(s, rs[i]), want[i], "Save of record %d", i)
					} else if !w.h.Promises.RepliesOnly {
						w.wantLoad(s, rs[i], "record %d", i)
					}
				}
			},
		},
		{
			Area: "batch", Name: "a batch twice", Needs: []need{needsBatches},
			Explain: "Saving a record again is safe: a consumer repeats a batch with an unknown outcome by calls of Save.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(w.Open(), w.node("n"))
				rs := []resultstore.Record{w.succeeded(w.node("n")), w.succeeded(w.node("n")), w.succeeded(w.node("n"))}
				w.saved(w.saveAll(s, rs...), "the first time")
				w.saved(w.saveAll(s, append(rs, w.succeeded(w.node("n")))...), "the second time")
			},
		},
		{
			Area: "batch", Name: "records of one task", Needs: []need{needsBatches, needsRecords},
			Explain: "Records of one task in a batch have the fence of Save: an older one never replaces a newer one, and nil means that the record was stored.",
			Run: func(w *world) {
				s := w.Open()
				last := with(w.succeeded(""), func(r *resultstore.Record) { r.Deliveries = 2 })
				first := with(last, func(r *resultstore.Record) { r.Deliveries, r.State, r.Result = 1, task.StateRetrying, nil })
				ctx, cancel := w.Ctx()
				defer cancel()
				errs := w.saveBatch(ctx, s, first, last)
				if errs[1] != nil {
					w.Must(w.trySave(s, last), "Save of the newer record")
				}
				w.wantLoad(s, last, "after a batch with an older and a newer record")
				if errs = w.saveAll(s, last, first); errs[0] != nil || !errors.Is(errs[1], resultstore.ErrStale) {
					w.Errorf("the newer record, then the older one: %v", errs)
				}
				w.wantLoad(s, last, "after a batch with a newer and an older record")
			},
		},
		{
			Area: "batch", Name: "a missing reply queue", Needs: []need{needsBatches, needsReplies},
			Explain: "Save waits for a missing reply queue. SaveBatch does not, because the other records would wait too: it returns ErrUnavailable for these records.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(w.Open(), w.node("here"))
				ctx, cancel := w.Ctx()
				defer cancel()
				errs := w.saveBatch(ctx, s, w.succeeded(w.node("nowhere")), w.succeeded(w.node("here")))
				w.WantIs(errs[0], resultstore.ErrUnavailable, "the record without a reply queue")
				w.Must(errs[1], "the record with a reply queue")
			},
		},
		{
			Area: "batch", Name: "a context that has ended", Needs: []need{needsBatches},
			Explain: "When ctx ends, SaveBatch returns, with an error for each record whose outcome is unknown.",
			Run: func(w *world) {
				s := w.Open()
				w.listen(w.Open(), w.node("n"))
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				ended := make(chan error, 2)
				go func() {
					for _, err := range suite.Offer[resultstore.BatchSaver](w, s).SaveBatch(ctx, []resultstore.Record{w.succeeded(w.node("n")), w.succeeded(w.node("n"))}) {
						ended <- err
					}
				}()
				for i := range 2 {
					if suite.Ends(w.World, ended, "SaveBatch with an ended ctx") == nil {
						w.Errorf("record %d: SaveBatch with an ended ctx reported a success", i)
					}
				}
			},
		},
		{
			Area: "batch", Name: "a closed store", Needs: []need{needsBatches},
			Explain: "After Close each outcome is ErrClosed.",
			Run: func(w *world) {
				s := w.Open()
				w.Close(s)
				ctx, cancel := w.Ctx()
				defer cancel()
				for i, err := range w.saveBatch(ctx, s, w.succeeded(w.node("n")), w.succeeded(w.node("n"))) {
					w.WantIs(err, resultstore.ErrClosed, "record %d", i)
				}
			},
		},
		{
			Area: "batch", Name: "the server is unreachable", Needs: []need{needsBatches, needsDown},
			Explain: "SaveBatch returns at the end of ctx with an error for each record. It may be called again, and works when the server is back.",
			Run: func(w *world) {
				s := w.Open()
				node := w.node("n")
				w.listen(w.Open(), node)
				w.saved(w.saveAll(s, w.succeeded(node)), "before")
				up := w.h.Down(w.TB)
				rs := []resultstore.Record{w.succeeded(node), w.succeeded(node)}
				ctx, cancel := context.WithTimeout(context.Background(), w.Quiet)
				defer cancel()
				for i, err := range w.saveBatch(ctx, s, rs...) {
					if err == nil {
						w.Errorf("record %d: a success without a server", i)
					}
				}
				up()
				for _, r := range rs {
					w.saveThrough(s, r)
				}
				w.saved(w.saveAll(s, rs...), "after")
			},
		},
	}
}
