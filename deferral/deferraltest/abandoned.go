package deferraltest

import (
	"time"

	"github.com/swarmiji/swarmiji/deferral"
)

// testAbandoned expects that an attempt that reserved a key and was silent for a day is delivered
// as Abandoned. Ack does not end that attempt: the broker may have its message for longer.
func testAbandoned(w *world) {
	a := attempt("t1", 0)
	w.reserve(a, "k")
	w.advance(day - time.Minute)
	w.idle()
	w.advance(time.Minute)
	w.ack(w.take(deferral.Abandoned))
	w.answer("k", Late)
	w.overtaken(a, false) // its message comes again
	w.reserve(a, "k")
	w.defers(a, "", time.Hour, deferral.Status{})
	w.answer("k", Accepted)
	// The next attempt's message waits in the broker for longer than the deferral exists.
	w.must(w.take(deferral.Answered).Next(w.ctx(), time.Time{}))
	w.advance(day + time.Minute)
	d := w.take(deferral.Abandoned)
	if len(d.Attempt().State) > 0 {
		w.Errorf("an attempt that has not begun has left %s", d.Attempt().State)
	}
	w.ack(d)
	w.overtaken(a, true)
	next := attempt("t1", 1)
	w.overtaken(next, false)
	w.reserve(next, "k")
	w.defers(next, "", time.Hour, deferral.Status{})
}

// testAbandonedWithAnswer expects that the answer of a silent attempt is kept for days, until the
// attempt is repeated or the next one begins.
func testAbandonedWithAnswer(w *world) {
	a := attempt("t1", 0)
	w.reserve(a, "k")
	w.answer("k", Accepted)
	for range 3 {
		w.advance(day + time.Minute)
		w.idle()
	}
	w.answer("k", Duplicate)
	w.overtaken(a, false)
	w.reserve(a, "k") // its message comes again
	w.defers(a, "", time.Hour, deferral.Status{Answered: true})
	w.ack(w.take(deferral.Answered))

	b := attempt("t2", 0) // the same between a refusal and the next attempt
	w.defers(b, "l", time.Hour, deferral.Status{})
	w.refuse("l", "no")
	w.must(w.take(deferral.Refused).Next(w.ctx(), time.Time{}))
	w.answer("l", Accepted)
	w.advance(2 * day)
	w.idle()
	w.defers(attempt("t2", 1), "l", time.Hour, deferral.Status{Answered: true})
	w.ack(w.take(deferral.Answered))
}

// testAbandonedAtMostOnce expects that a silent attempt that runs at most once is delivered after a
// day: as Answered if it has an answer, otherwise as Abandoned.
func testAbandonedAtMostOnce(w *world) {
	a := attempt("t1", 0)
	a.AtMostOnce = true
	w.reserve(a, "k")
	w.answer("k", Accepted)
	w.idle()
	w.advance(day + time.Minute)
	d := w.take(deferral.Answered)
	if string(d.Outcome().Answer) != `"k!"` || !d.Attempt().AtMostOnce {
		w.Errorf("%+v, %+v", d.Attempt(), d.Outcome())
	}
	w.ack(d)
	b := attempt("t2", 0)
	b.AtMostOnce = true
	w.reserve(b, "l")
	w.advance(day + time.Minute)
	w.ack(w.take(deferral.Abandoned))
}

// testAnsweredWhileAbandoned expects that an answer between an Abandoned delivery and its Ack is
// kept for the repeated attempt.
func testAnsweredWhileAbandoned(w *world) {
	a := attempt("t1", 0)
	w.reserve(a, "k")
	w.advance(day + time.Minute)
	d := w.take(deferral.Abandoned)
	w.answer("k", Accepted)
	w.ack(d)
	w.idle()
	w.reserve(a, "k")
	w.defers(a, "", time.Hour, deferral.Status{Answered: true})
	w.ack(w.take(deferral.Answered))
}
