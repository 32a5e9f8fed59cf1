package brokertest

import (
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/tx"
)

// txAcker returns d as a TxAcker. It fails the case at once if d is not a TxAcker.
func (w *world) txAcker(d broker.Delivery) broker.TxAcker {
	w.Helper()
	a, ok := capability.As[broker.TxAcker](d)
	if !ok {
		w.Fatalf("the Delivery is no TxAcker")
	}
	return a
}

// ackTx acknowledges d in the transaction t and returns the error of AckTx.
func (w *world) ackTx(d broker.Delivery, t tx.Tx) error {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	return w.Clean(w.txAcker(d).AckTx(ctx, t))
}

// wantSettled calls Settled until it returns no error, and expects the result want. An error that
// no lost connection explains fails the case at once, see transient.
func (w *world) wantSettled(d broker.Delivery, want bool) {
	w.Helper()
	var got bool
	w.Until("the end of the transaction is known", func() (ok bool) {
		ctx, cancel := w.Ctx()
		defer cancel()
		var err error
		got, err = w.txAcker(d).Settled(ctx)
		if w.Clean(err) != nil && !transient(err) {
			w.Fatalf("Settled: %v", err)
		}
		return err == nil
	})
	if got != want {
		w.Errorf("Settled is %v, want %v", got, want)
	}
}

// acknowledgementCases returns the cases of TxAcker and tx.Checker.
func acknowledgementCases() []testCase {
	return []testCase{
		{
			Area: "transaction", Name: "an acknowledgement that is committed", Needs: []need{needsTransactions},
			Explain: "AckTx removes the message if and only if the caller commits. Until then it can be found by no other consumer. Settled returns true then, and a further settlement ErrSettled.",
			Run: func(w *world) {
				b, other := w.Open(), w.Open()
				q := w.queue(b, "q")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				w.wantSettled(d, false)
				t := w.h.Begin(w.TB)
				w.Must(w.ackTx(d, t.Tx), "AckTx")
				s := w.subscribe(other, q, 0)
				w.nothing(s, "before the commit")
				w.Must(t.Commit(), "Commit")
				w.wantSettled(d, true)
				w.wantSettled(d, true)
				w.nothing(s, "after the commit")
				ctx, cancel := w.Ctx()
				defer cancel()
				w.WantIs(w.Clean(d.Ack(ctx)), broker.ErrSettled, "Ack after the commit")
			},
		},
		{
			Area: "transaction", Name: "an acknowledgement that is rolled back", Needs: []need{needsTransactions},
			Explain: "After a rollback Settled returns false, and the delivery must still be settled: by AckTx in another transaction, or in any other way, also without a call of Settled.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				s := w.subscribe(b, q, 0)
				ctx, cancel := w.Ctx()
				defer cancel()
				roll := func(d broker.Delivery) {
					t := w.h.Begin(w.TB)
					w.Must(w.ackTx(d, t.Tx), "AckTx")
					w.Must(t.Rollback(), "Rollback")
				}
				w.publish(b, q, msg("a"))
				d := w.receive(s)
				roll(d)
				w.wantSettled(d, false)
				w.Must(d.Release(ctx, 0), "Release after the rollback")
				d = w.receive(s)
				roll(d)
				roll(d)
				w.Must(d.Release(ctx, 0), "Release without a call of Settled")
				d = w.receive(s)
				roll(d)
				t := w.h.Begin(w.TB)
				w.Must(w.ackTx(d, t.Tx), "AckTx after a rollback")
				w.Must(t.Commit(), "Commit")
				w.wantSettled(d, true)
				w.nothing(s, "after the commit")
			},
		},
		{
			Area: "transaction", Name: "a second acknowledgement", Needs: []need{needsTransactions},
			Explain: "AckTx returns ErrSettled if the message is settled, or if a transaction of an earlier call is still open or has committed. Nothing was changed then, and the transaction can go on and commit.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				s := w.subscribe(b, q, 0)
				w.publish(b, q, msg("a"), msg("b"))
				d := w.receive(s)
				t := w.h.Begin(w.TB)
				w.Must(w.ackTx(d, t.Tx), "AckTx")
				w.WantIs(w.ackTx(d, t.Tx), broker.ErrSettled, "AckTx again in the same transaction")
				w.lives(t.Tx, "the second AckTx")
				w.Must(t.Commit(), "Commit")
				t = w.h.Begin(w.TB)
				w.WantIs(w.ackTx(d, t.Tx), broker.ErrSettled, "AckTx after the commit")
				w.lives(t.Tx, "AckTx after the commit")
				w.Must(t.Rollback(), "Rollback")
				d = w.receive(s)
				w.ack(d)
				t = w.h.Begin(w.TB)
				w.WantIs(w.ackTx(d, t.Tx), broker.ErrSettled, "AckTx after Ack")
				w.lives(t.Tx, "AckTx after Ack")
				w.Must(t.Commit(), "Commit")
			},
		},
		{
			Area: "transaction", Name: "acknowledgements in other databases", Needs: []need{needsTransactions},
			Explain: "AckTx and CheckTx return ErrUnsupported for a transaction of another database. It can go on, and the delivery can be settled.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				w.publish(b, q, msg("a"))
				d := w.receive(w.subscribe(b, q, 1))
				c, ok := capability.As[tx.Checker](b)
				if !ok {
					w.Fatal("the Broker is no tx.Checker")
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				own := w.h.Begin(w.TB)
				w.Must(c.CheckTx(ctx, own.Tx), "CheckTx of a transaction of the database")
				w.Must(own.Commit(), "Commit")
				for _, what := range slices.Sorted(maps.Keys(w.h.Foreign)) {
					t := w.h.Foreign[what](w.TB)
					w.WantIs(w.Clean(c.CheckTx(ctx, t.Tx)), broker.ErrUnsupported, "CheckTx of a transaction of %s", what)
					w.WantIs(w.ackTx(d, t.Tx), broker.ErrUnsupported, "AckTx in a transaction of %s", what)
					w.lives(t.Tx, "the refusal of a transaction of "+what)
					w.Must(t.Commit(), "Commit of the transaction of %s", what)
				}
				w.wantSettled(d, false)
				w.ack(d)
			},
		},
	}
}
