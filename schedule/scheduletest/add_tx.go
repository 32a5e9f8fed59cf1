package scheduletest

import (
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/tx"
)

// Transaction is a transaction of a connection that does not belong to the store, with the
// functions that end it.
type Transaction struct {
	Tx       tx.Tx
	Commit   func() error
	Rollback func() error
}

// needsTransactions is the [need] of cases that call AddTx.
func needsTransactions(h *Harness) string {
	if !h.Promises.Transactions {
		return "the adapter does not promise Transactions"
	}
	return ""
}

// addTx calls AddTx in t and returns its results. It fails the test if the store is not a TxAdder,
// or if the error contains the secret.
func (w *world) addTx(s Store, t Transaction, entries ...schedule.Entry) ([]bool, error) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	added, err := offers[schedule.TxAdder](w, s).AddTx(ctx, t.Tx, entries)
	return added, w.Clean(err)
}

// lives fails the test unless a statement of t still succeeds. after names, for the failure
// message, the step before.
func (w *world) lives(t Transaction, after string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	rows, err := t.Tx.Query(ctx, "SELECT 1")
	w.Must(err, "a statement after %s", after)
	for rows.Next() {
	}
	w.Must(rows.Err(), "a statement after %s", after)
	w.Must(rows.Close(), "closing the rows after %s", after)
}

// addTxCases tests TxAdder.
func addTxCases() []testCase {
	return []testCase{
		{
			Area: "transaction", Name: "entries exist after the commit", Needs: []need{needsTransactions},
			Explain: "AddTx adds entries in a transaction of the caller: they exist if and only if it commits.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				e, kept := w.entry(w.now(s).Add(-time.Second)), w.overdue(s)
				k := w.wantOne(s, kept.ID)
				w.claim(s, "a", long, k, time.Time{})
				for _, commit := range []bool{false, true} {
					t := w.h.Begin(w.TB)
					added, err := w.addTx(s, t, e, kept, e)
					w.Must(err, "AddTx")
					if !slices.Equal(added, []bool{true, false, false}) {
						w.Errorf("AddTx answers %v, want that the first entry alone is new", added)
					}
					w.wantNone(other, "before the end of the transaction")
					if !commit {
						w.Must(t.Rollback(), "Rollback")
						w.wantNone(other, "after the rollback")
						continue
					}
					w.Must(t.Commit(), "Commit")
					w.wantDue(w.wantOne(other, e.ID), e.Next, "an entry after the commit")
				}
			},
		},
		{
			Area: "transaction", Name: "a lost due time", Needs: []need{needsTransactions},
			Explain: "AddTx gives an unscheduled entry its Next, as Add does, in the transaction.",
			Run: func(w *world) {
				s := w.Open()
				e := w.overdue(s)
				w.stray(s, e.ID)
				t := w.h.Begin(w.TB)
				added, err := w.addTx(s, t, e)
				w.Must(err, "AddTx")
				if added[0] {
					w.Error("an entry that exists is new")
				}
				w.Must(t.Commit(), "Commit")
				w.wantOne(s, e.ID)
			},
		},
		{
			Area: "transaction", Name: "a refused call", Needs: []need{needsTransactions},
			Explain: "After ErrBadEntry nothing was added, and the transaction can go on and commit.",
			Run: func(w *world) {
				s := w.Open()
				bad, good := w.entry(w.now(s).Add(-time.Second)), w.entry(w.now(s).Add(-time.Second))
				bad.Payload = nil
				t := w.h.Begin(w.TB)
				_, err := w.addTx(s, t, good, bad)
				w.WantIs(err, schedule.ErrBadEntry, "AddTx with an entry that is invalid")
				w.lives(t, "the refusal")
				w.Must(t.Commit(), "Commit")
				w.wantNone(s, "after the refusal")
			},
		},
		{
			Area: "transaction", Name: "transactions of other databases", Needs: []need{needsTransactions},
			Explain: "AddTx returns ErrUnsupported for a transaction of another database. Nothing was added, and it can go on and commit.",
			Run: func(w *world) {
				s := w.Open()
				e := w.entry(w.now(s).Add(-time.Second))
				for _, what := range slices.Sorted(maps.Keys(w.h.Foreign)) {
					t := w.h.Foreign[what](w.TB)
					_, err := w.addTx(s, t, e)
					w.WantIs(err, schedule.ErrUnsupported, "AddTx in a transaction of %s", what)
					w.lives(t, "the refusal of a transaction of "+what)
					w.Must(t.Commit(), "Commit of the transaction of %s", what)
				}
				w.wantNone(s, "after the refusals")
			},
		},
	}
}
