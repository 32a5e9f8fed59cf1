package brokertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/tx"
)

// Transaction is a transaction of a connection that does not belong to the Broker.
type Transaction struct {
	Tx       tx.Tx
	Commit   func() error
	Rollback func() error
}

// publishTx stores messages with PublishTx in the transaction t and returns the error. It fails the
// case at once if b is not a TxPublisher.
func (w *world) publishTx(b broker.Broker, t tx.Tx, ms ...broker.Outgoing) error {
	w.Helper()
	p, ok := capability.As[broker.TxPublisher](b)
	if !ok {
		w.Fatalf("the Broker is no TxPublisher")
	}
	ctx, cancel := w.Ctx()
	defer cancel()
	return w.Clean(p.PublishTx(ctx, t, ms))
}

// lives expects that statements of t still succeed. after names the step before, for a failure. An
// error fails the case at once.
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

// transactionCases returns the cases of TxPublisher.
func transactionCases() []testCase {
	return []testCase{
		{
			Area: "transaction", Name: "consumers see messages after the commit", Needs: []need{needsTransactions, needsDelays},
			Explain: "PublishTx stores messages in a transaction of the caller. Their consumers see them if and only if the caller commits. It neither commits nor rolls back.",
			Run: func(w *world) {
				b := w.Open()
				one, two := w.queue(b, "one"), w.queue(b, "two")
				onOne, onTwo := w.subscribe(b, one, 0), w.subscribe(b, two, 0)
				t := w.h.Begin(w.TB)
				rich := msg("rich")
				rich.Headers, rich.Properties = map[string]any{"a": "b"}, map[string]string{"c": "d"}
				rich.Generation, rich.Expires = 3, time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
				empty := &broker.Message{ID: "empty"}
				w.Must(w.publishTx(b, t.Tx,
					broker.Outgoing{Queue: one, Message: rich},
					broker.Outgoing{Queue: two, Message: empty},
					broker.Outgoing{Queue: two, Message: msg("later"), At: time.Now().Add(time.Hour)},
				), "PublishTx")
				w.nothing(onOne, "before the commit")
				w.nothing(onTwo, "before the commit")
				w.Must(t.Commit(), "Commit")
				d := w.receive(onOne)
				if diff := diffMessage(rich, d.Message()); diff != "" {
					w.Errorf("the message (-published +received):\n%s", diff)
				}
				w.ack(d)
				d = w.receive(onTwo)
				if d.Message().ID != "empty" || len(d.Message().Body) != 0 {
					w.Errorf("received %s, want the empty message", name(d.Message()))
				}
				w.ack(d)
				w.nothing(onTwo, "the message of a later time")
			},
		},
		{
			Area: "transaction", Name: "a rollback", Needs: []need{needsTransactions},
			Explain: "Consumers see the messages of PublishTx only if the caller commits.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				s := w.subscribe(b, q, 0)
				for i := range 3 {
					t := w.h.Begin(w.TB)
					w.Must(w.publishTx(b, t.Tx, broker.Outgoing{Queue: q, Message: msg(fmt.Sprint(i))}), "PublishTx")
					w.Must(t.Rollback(), "Rollback")
				}
				w.nothing(s, "after the rollbacks")
			},
		},
		{
			Area: "transaction", Name: "many messages, in their order", Needs: []need{needsTransactions, needsOrder},
			Explain: "PublishTx stores all messages of a call, in their order. Without messages it does nothing.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				t := w.h.Begin(w.TB)
				w.Must(w.publishTx(b, t.Tx), "PublishTx without messages")
				var ms []broker.Outgoing
				for _, m := range msgs("m", 300) {
					ms = append(ms, broker.Outgoing{Queue: q, Message: m})
				}
				w.Must(w.publishTx(b, t.Tx, ms...), "PublishTx")
				w.Must(t.Commit(), "Commit")
				for i, d := range w.receiveN(w.subscribe(b, q, 0), len(ms)) {
					if d.Message().ID != ms[i].Message.ID {
						w.Fatalf("message %d is %s, want %s", i, d.Message().ID, ms[i].Message.ID)
					}
					w.ack(d)
				}
			},
		},
		{
			Area: "transaction", Name: "a refused call", Needs: []need{needsTransactions, needsQueues},
			Explain: "PublishTx stores all messages or none. After ErrNoQueue, ErrMalformed or ErrTooLarge nothing was stored, and the transaction can go on and commit.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				t := w.h.Begin(w.TB)
				refused := map[string]struct {
					bad  broker.Outgoing
					want error
				}{
					"no queue": {broker.Outgoing{Queue: w.h.Prefix + "missing", Message: msg("b")}, broker.ErrNoQueue},
					"a name":   {broker.Outgoing{Queue: "not a name", Message: msg("b")}, broker.ErrMalformed},
					"an id":    {broker.Outgoing{Queue: q, Message: msg("")}, broker.ErrMalformed},
				}
				if most := w.h.Promises.MaxBody; most > 0 {
					large := msg("b")
					large.Body = make([]byte, most+1)
					refused["a size"] = struct {
						bad  broker.Outgoing
						want error
					}{broker.Outgoing{Queue: q, Message: large}, broker.ErrTooLarge}
				}
				for what, r := range refused {
					for _, ms := range [][]broker.Outgoing{{{Queue: q, Message: msg("a")}, r.bad}, {r.bad, {Queue: q, Message: msg("a")}}} {
						w.WantIs(w.publishTx(b, t.Tx, ms...), r.want, "PublishTx of %s", what)
						w.lives(t.Tx, what)
					}
				}
				w.Must(w.publishTx(b, t.Tx, broker.Outgoing{Queue: q, Message: msg("good")}), "PublishTx after the refused calls")
				w.Must(t.Commit(), "Commit")
				w.drain(w.subscribe(b, q, 0), "good/0")
			},
		},
		{
			Area: "transaction", Name: "a message that is queued already", Needs: []need{needsTransactions, needsDedupe},
			Explain: "A message whose (ID, Generation) is queued already is not stored again; that is a success.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				w.publish(b, q, msg("a"))
				t := w.h.Begin(w.TB)
				again := broker.Outgoing{Queue: q, Message: msg("a")}
				once := broker.Outgoing{Queue: q, Message: msg("b")}
				w.Must(w.publishTx(b, t.Tx, again, once, once), "PublishTx")
				w.Must(w.publishTx(b, t.Tx, once), "a second PublishTx")
				w.lives(t.Tx, "the repetitions")
				w.Must(t.Commit(), "Commit")
				for n, count := range w.drain(w.subscribe(b, q, 0), "a/0", "b/0") {
					if count != 1 {
						w.Errorf("%s was seen %d times", n, count)
					}
				}
			},
		},
		{
			Area: "transaction", Name: "transactions of other databases", Needs: []need{needsTransactions},
			Explain: "PublishTx returns ErrUnsupported for a transaction of another database. Nothing was stored, and the transaction can go on and commit.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "q")
				for _, what := range slices.Sorted(maps.Keys(w.h.Foreign)) {
					t := w.h.Foreign[what](w.TB)
					w.WantIs(w.publishTx(b, t.Tx, broker.Outgoing{Queue: q, Message: msg("a")}), broker.ErrUnsupported, "PublishTx in a transaction of %s", what)
					w.lives(t.Tx, "the refusal of a transaction of "+what)
					w.Must(t.Commit(), "Commit of the transaction of %s", what)
				}
				w.nothing(w.subscribe(b, q, 0), "after the refusals")
			},
		},
	}
}
