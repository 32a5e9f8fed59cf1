package brokertest

import (
	"time"

	"github.com/swarmiji/swarmiji/broker"
)

// lasting is a part of the restart case. store stores something before a restart of the server and
// returns the check for after it. The parts share one restart, because a restart is the slowest
// step of the suite.
type lasting struct {
	needs []need // unmet: the part is left out
	store func(w *world, b broker.Broker) (check func())
}

// restartCases returns the case of the data that outlive a restart of the server.
func restartCases() []testCase {
	return []testCase{{
		Area: "restart", Name: "what was confirmed outlives a restart", Needs: []need{needsRestart, needsDurable},
		Explain: "A confirmed message, a delayed one, a dead letter and a note of a start exist unchanged after the server was restarted. What was acknowledged or removed stays away.",
		Run: func(w *world) {
			b := w.Open()
			var checks []func()
			for _, part := range []lasting{
				{store: lastingMessages},
				{store: lastingAcks},
				{needs: []need{needsDelays}, store: lastingDelays},
				{needs: []need{needsDeadLetters}, store: lastingLetters},
				{needs: []need{needsWitness}, store: lastingNotes},
			} {
				if w.met(part.needs) {
					checks = append(checks, part.store(w, b))
				}
			}
			w.h.Restart(w.TB)
			for _, check := range checks {
				check()
			}
		},
	}}
}

// met reports whether the harness meets the needs.
func (w *world) met(needs []need) bool {
	for _, unmet := range needs {
		if unmet(w.h) != "" {
			return false
		}
	}
	return true
}

// lastingMessages publishes messages and returns the check that each still exists unchanged.
func lastingMessages(w *world, b broker.Broker) func() {
	q, want := w.queue(b, "kept"), fullMessage()
	sent := *want
	w.publish(b, q, &sent)
	w.publish(b, q, msgs("m", 20)...)
	return func() {
		s := w.subscribe(w.Open(), q, 0)
		d := w.receiveID(s, want.ID)
		if diff := diffMessage(want, d.Message()); diff != "" {
			w.Errorf("the message changed in the restart (-sent +received):\n%s", diff)
		}
		w.ack(d)
		w.drainAll(s, names(msgs("m", 20)...)...)
	}
}

// lastingAcks publishes and acknowledges messages, and returns the check that none returns. It uses
// a Broker of its own, which it closes.
func lastingAcks(w *world, _ broker.Broker) func() {
	b := w.Open()
	q := w.queue(b, "acked")
	w.publish(b, q, msgs("m", 5)...)
	w.ack(w.receiveN(w.subscribe(b, q, 0), 5)...)
	w.closeBroker(b) // ends the calls in progress: the acks have arrived
	return func() { w.nothing(w.subscribe(w.Open(), q, 0), "after a restart") }
}

// lastingDelays publishes delayed messages and returns the check that they arrive, and none early.
func lastingDelays(w *world, b broker.Broker) func() {
	q := w.queue(b, "delayed")
	s := w.subscribe(w.Open(), q, 0)
	soon, late := time.Now().Add(300*time.Millisecond), time.Now().Add(2*time.Second)
	w.publishAt(b, q, msg("late"), late)
	w.publishAt(b, q, msg("soon"), soon)
	return func() {
		for range 2 {
			d := w.receive(s)
			at := soon
			if d.Message().ID == "late" {
				at = late
			}
			if early := time.Until(at); early > 0 {
				w.Errorf("%s came %v early after a restart", d.Message().ID, early)
			}
			w.ack(d)
		}
	}
}

// lastingLetters stores dead letters, removes one, and returns the check that only the others
// exist.
func lastingLetters(w *world, b broker.Broker) func() {
	dead, put := w.queue(b, "dead"), w.queue(b, "put")
	w.publish(b, dead, msg("a"))
	w.deadLetter(b, dead, "why")
	for _, id := range []string{"a", "b"} {
		w.put(b, put, broker.Dead{Message: msg(id), Reason: "why"})
	}
	w.scans(b, put, map[string]broker.DeadAction{"a": broker.DeadRemove}, "a", "b")
	return func() {
		if d := w.listDead(b, dead, 10, 1); d[0].Reason != "why" && !w.h.Promises.Reasonless {
			w.Errorf("Reason is %q after a restart, want %q", d[0].Reason, "why")
		}
		if d := w.listDead(b, put, 10, 1); d[0].Message.ID != "b" {
			w.Errorf("%s is left", name(d[0].Message))
		}
	}
}

// lastingNotes stores notes of starts with a verdict. It returns the check that the notes still
// exist and that their node is present again.
func lastingNotes(w *world, b broker.Broker) func() {
	q := w.queue(b, "noted")
	first, second := w.note("1", "node"), w.note("2", "node")
	w.noteStart(b, q, first)
	w.noteStart(b, q, second, first)
	w.judgeStart(b, q, &first, broker.StartDied)
	return func() {
		w.presentSoon(w.Open(), "node")
		w.Until("NoteStart after a restart", func() bool {
			ctx, cancel := w.Ctx()
			defer cancel()
			got, err := w.witness(b).NoteStart(ctx, q, w.note("3", "node"))
			if w.Clean(err) != nil && !transient(err) {
				w.Fatalf("NoteStart after a restart: %v", err)
			}
			if err == nil {
				w.sameNotes(got, []broker.Start{first, second})
			}
			return err == nil
		})
	}
}
