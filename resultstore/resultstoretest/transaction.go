package resultstoretest

import (
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx"
)

// Transaction is a transaction of a connection that does not belong to the store.
type Transaction struct {
	Tx       tx.Tx
	Commit   func() error
	Rollback func() error
}

// needsTransactions returns the reason to skip a case: Transactions is not promised, or the harness
// has no Begin. Otherwise it returns "".
func needsTransactions(h *Harness) string {
	if h.Promises.Transactions && h.Begin == nil {
		return "the harness has no Begin"
	}
	return suite.Unless(h.Promises.Transactions, "the adapter does not promise Transactions")
}

// saveTx calls SaveTx and returns its error. It fails the case if s does not implement TxSaver or
// the error contains the secret.
func (w *world) saveTx(s resultstore.ResultStore, t tx.Tx, r resultstore.Record) error {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	return w.Clean(suite.Offer[resultstore.TxSaver](w, s).SaveTx(ctx, t, r))
}

// lives fails the case unless t still executes a statement. The argument after names the preceding
// step in the failure.
func (w *world) lives(t tx.Tx, after string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	rows, err := t.Query(ctx, "SELECT 1")
	w.Must(err, "a statement after %s", after)
	for rows.Next() {
	}
	w.Must(rows.Err(), "a statement after %s", after)
	w.Must(rows.Close(), "closing the rows after %s", after)
}

// prepared opens a store and makes its tables, by loading a record that does not exist.
func (w *world) prepared() resultstore.ResultStore {
	s := w.Open()
	w.wantNone(s, w.id(), "a new task")
	return s
}

// transactionCases returns the cases of SaveTx, ArriveTx and MembersTx, the calls in a transaction
// of the caller.
func transactionCases() []testCase {
	return []testCase{
		{
			Area: "transaction", Name: "the interfaces are there when they are promised",
			Explain: "A store that implements TxSaver also promises Transactions, so that it is tested. It is a tx.Checker, and a TxGatherer if it is a Gatherer.",
			Run: func(w *world) {
				s := w.Open()
				_, saves := capability.As[resultstore.TxSaver](s)
				_, checks := capability.As[tx.Checker](s)
				_, gathers := capability.As[resultstore.TxGatherer](s)
				want := w.h.Promises.Transactions
				if saves != want || checks != want || gathers != (want && w.h.Promises.Gather) {
					w.Errorf("the store is a TxSaver: %v, a Checker: %v, a TxGatherer: %v; promised is %v", saves, checks, gathers, want)
				}
			},
		},
		{
			Area: "transaction", Name: "a record that is committed or rolled back", Needs: []need{needsTransactions},
			Explain: "Load finds a record of SaveTx if and only if the caller commits. Saving it again after the commit changes nothing.",
			Run: func(w *world) {
				s, other := w.prepared(), w.prepared()
				kept, lost := w.succeeded(""), w.succeeded("")
				t := w.h.Begin(w.TB)
				w.Must(w.saveTx(s, t.Tx, kept), "SaveTx")
				w.wantNone(other, kept.ID, "before the commit")
				w.Must(w.saveTx(s, t.Tx, kept), "SaveTx again")
				w.Must(t.Commit(), "Commit")
				w.wantLoad(other, kept, "after the commit")
				w.save(s, kept)
				w.wantLoad(other, kept, "after another Save")
				t = w.h.Begin(w.TB)
				w.Must(w.saveTx(s, t.Tx, lost), "SaveTx")
				w.Must(t.Rollback(), "Rollback")
				w.wantNone(other, lost.ID, "after the rollback")
			},
		},
		{
			Area: "transaction", Name: "the submitter is notified after the commit", Needs: []need{needsTransactions, needsNotify},
			Explain: "SaveTx notifies nobody before the commit. Save with the same record after the commit notifies the submitter.",
			Run: func(w *world) {
				s := w.prepared()
				stream := w.notify(s, w.node("node"))
				r := w.succeeded(w.node("node"))
				t := w.h.Begin(w.TB)
				w.Must(w.saveTx(s, t.Tx, r), "SaveTx")
				w.nothing(stream, "before the commit")
				w.Must(t.Commit(), "Commit")
				w.save(s, r)
				if diff := diffRecord(r, w.receive(stream)); diff != "" {
					w.Errorf("(-saved +received):\n%s", diff)
				}
				w.closeStream(stream)
			},
		},
		{
			Area: "transaction", Name: "a refused record", Needs: []need{needsTransactions},
			Explain: "SaveTx has the fence of Save. After ErrStale, ErrMalformed and a bad id nothing was changed, and the transaction can go on and commit.",
			Run: func(w *world) {
				s := w.prepared()
				final := token(w.succeeded(""), task.StateSucceeded, 1, 1)
				open := token(w.succeeded(""), task.StateRetrying, 0, 1)
				w.save(s, final, open)
				t := w.h.Begin(w.TB)
				for _, r := range []resultstore.Record{token(final, task.StateSucceeded, 0, 1), token(final, task.StateSucceeded, 1, 2), token(final, task.StateFailed, 1, 1)} {
					w.WantIs(w.saveTx(s, t.Tx, r), resultstore.ErrStale, "SaveTx of %s over %s", show(r), show(final))
				}
				bad := final
				bad.State = task.StatePending
				w.WantIs(w.saveTx(s, t.Tx, bad), resultstore.ErrMalformed, "SaveTx of a pending task")
				bad = final
				bad.ID = "not an id"
				w.WantIs(w.saveTx(s, t.Tx, bad), task.ErrBadID, "SaveTx of a bad id")
				w.lives(t.Tx, "the refused records")
				next := token(open, task.StateSucceeded, 1, 1)
				w.Must(w.saveTx(s, t.Tx, next), "SaveTx of a newer record")
				w.Must(t.Commit(), "Commit")
				w.wantLoad(s, final, "after the commit")
				w.wantLoad(s, next, "after the commit")
			},
		},
		{
			Area: "transaction", Name: "records in other databases", Needs: []need{needsTransactions},
			Explain: "SaveTx and CheckTx return ErrUnsupported for a transaction of another database, which can go on and commit.",
			Run: func(w *world) {
				s := w.prepared()
				c := suite.Offer[tx.Checker](w, s)
				ctx, cancel := w.Ctx()
				defer cancel()
				own := w.h.Begin(w.TB)
				w.Must(c.CheckTx(ctx, own.Tx), "CheckTx of a transaction of the database")
				w.Must(own.Commit(), "Commit")
				r := w.succeeded("")
				for _, what := range slices.Sorted(maps.Keys(w.h.Foreign)) {
					t := w.h.Foreign[what](w.TB)
					w.WantIs(w.Clean(c.CheckTx(ctx, t.Tx)), resultstore.ErrUnsupported, "CheckTx of a transaction of %s", what)
					w.WantIs(w.saveTx(s, t.Tx, r), resultstore.ErrUnsupported, "SaveTx in a transaction of %s", what)
					w.lives(t.Tx, "the refusal of a transaction of "+what)
					w.Must(t.Commit(), "Commit of the transaction of %s", what)
				}
				w.wantNone(s, r.ID, "after the refusals")
			},
		},
		{
			Area: "transaction", Name: "a member of a group", Needs: []need{needsTransactions, needsGather},
			Explain: "ArriveTx stores the end of a member if and only if the caller commits. MembersTx finds it before that. A misfit is ErrMalformed, and the transaction goes on.",
			Run: func(w *world) {
				s, g := w.prepared(), w.gatherer()
				in := suite.Offer[resultstore.TxGatherer](w, s)
				group := w.id()
				w.arrive(g, w.member(group, 0, 2), resultstore.Gathered{Size: 2, Done: 1, Decider: -1})
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, commit := range []bool{false, true} {
					t := w.h.Begin(w.TB)
					got, err := in.ArriveTx(ctx, t.Tx, w.member(group, 1, 2))
					w.Must(err, "ArriveTx")
					if want := (resultstore.Gathered{Size: 2, Done: 2, Decider: 1}); got != want {
						w.Errorf("ArriveTx returned %+v, want %+v", got, want)
					}
					page, err := in.MembersTx(ctx, t.Tx, group, 0, 10)
					w.Must(err, "MembersTx")
					if len(page) != 2 {
						w.Errorf("MembersTx returned %d members, want 2", len(page))
					}
					page, err = g.Members(ctx, group, 0, 10)
					w.Must(err, "Members")
					if len(page) != 1 {
						w.Errorf("Members returned %d members before the commit, want 1", len(page))
					}
					_, err = in.ArriveTx(ctx, t.Tx, w.member(group, 2, 3))
					w.WantIs(w.Clean(err), resultstore.ErrMalformed, "ArriveTx of a misfit")
					w.lives(t.Tx, "a misfit")
					if !commit {
						w.Must(t.Rollback(), "Rollback")
						continue
					}
					w.Must(t.Commit(), "Commit")
				}
				w.arrive(g, w.member(group, 1, 2), resultstore.Gathered{Size: 2, Done: 2, Decider: 1})
			},
		},
	}
}
