package deferraltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/task"
)

// testAnswered follows an attempt from Reserve to Ack after an answer. It checks the delivery, the
// receipts of repeated answers, and that the end is forgotten only after a day.
func testAnswered(w *world) {
	a := attempt("t1", 0)
	w.overtaken(a, false)
	w.reserve(a, "k")
	w.overtaken(a, false)
	w.idle()
	w.defers(a, "", time.Hour, deferral.Status{})
	w.overtaken(a, true)
	w.defers(a, "k", time.Minute, deferral.Status{Before: true}) // another delivery of the message
	w.advance(59 * time.Minute)
	w.idle()
	w.is(w.s.Reserve(w.ctx(), a, "k"), deferral.ErrStale)
	w.answer("k", Accepted)
	w.answer("k", Duplicate)
	d := w.take(deferral.Answered)
	o, got := d.Outcome(), d.Attempt()
	if string(o.Answer) != `"k!"` || o.Again || string(got.State) != `{"of":"t1"}` || got.Queue != "q" || got.Name != "ask" || got.Task != "t1" || got.AtMostOnce {
		w.Fatalf("received %+v, %+v", got, o)
	}
	w.idle()
	w.ack(d)
	w.ack(d) // the answer of the first call was lost
	w.overtaken(a, true)
	w.answer("k", Duplicate)
	w.advance(day - time.Minute)
	w.must(w.h.Purge(w.ctx()))
	w.overtaken(a, true)
	w.is(w.s.Reserve(w.ctx(), a, "k"), deferral.ErrStale)
	w.advance(time.Hour)
	w.must(w.h.Purge(w.ctx()))
	w.overtaken(a, false)
}

// testTimesOut expects a TimedOut delivery at the deadline. Later answers are Late, and after Ack
// the key is free.
func testTimesOut(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.advance(time.Hour)
	d := w.take(deferral.TimedOut)
	w.answer("k", Late) // it is being settled: answers are refused
	w.ack(d)
	w.answer("k", Late)
	w.defers(attempt("t2", 0), "k", 0, deferral.Status{}) // the key is free again
	w.ack(w.take(deferral.TimedOut))
}

// testAnswerAfterATimeout expects that an answer between Next and the next attempt is kept for the
// next attempt.
func testAnswerAfterATimeout(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.advance(time.Hour)
	w.must(w.take(deferral.TimedOut).Next(w.ctx(), time.Now().Add(time.Hour)))
	w.answer("k", Accepted)
	next := attempt("t1", 1)
	w.overtaken(next, false)
	w.defers(next, "k", time.Hour, deferral.Status{Answered: true})
	if d := w.take(deferral.Answered); string(d.Outcome().Answer) != `"k!"` {
		w.Fatalf("%+v", d.Outcome())
	}
}

// testRefused expects a Refused delivery with its reason. After Next the earlier attempt is stale,
// and an answer for the key is kept for the next attempt.
func testRefused(w *world) {
	a := attempt("t1", 0)
	w.defers(a, "k", time.Hour, deferral.Status{})
	w.refuse("k", "no")
	d := w.take(deferral.Refused)
	if o := d.Outcome(); o.Refusal != "no" || o.Answer != nil {
		w.Fatalf("%+v", o)
	}
	// The next attempt is queued and gets further answers for the key.
	w.must(d.Next(w.ctx(), time.Now().Add(time.Hour)))
	w.is(d.Ack(w.ctx()), broker.ErrLeaseLost)
	w.overtaken(a, true)
	w.is(w.s.Reserve(w.ctx(), a, "k"), deferral.ErrStale)
	w.answer("k", Accepted)
	w.idle()
	next := attempt("t1", 1)
	w.overtaken(next, false)
	w.reserve(next, "k")
	w.defers(next, "", time.Hour, deferral.Status{Answered: true})
	w.ack(w.take(deferral.Answered))
	w.is(w.s.Reserve(w.ctx(), next, "k"), deferral.ErrStale)
}

// testEarly expects that an answer before Defer, or before Reserve, makes the deferral due at once.
// An answer for a key that was replaced is deleted.
func testEarly(w *world) {
	w.answer("k", Early)
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{Answered: true})
	d := w.take(deferral.Answered)
	if string(d.Outcome().Answer) != `"k!"` {
		w.Fatalf("%+v", d.Outcome())
	}
	w.ack(d)
	a := attempt("t2", 0)
	w.reserve(a, "l")
	w.answer("l", Accepted) // the request is being sent
	w.idle()
	w.defers(a, "l", time.Hour, deferral.Status{Answered: true})
	w.take(deferral.Answered)
	e := attempt("t3", 0)
	w.reserve(e, "m")
	w.answer("m", Accepted)
	w.reserve(e, "n") // the answer for the other key is deleted
	w.defers(e, "", time.Hour, deferral.Status{})
}

// testOneHolder expects that a deferral whose lease has ended goes to another consumer, with Again
// set. Next, Release and Ack of the first consumer then return ErrLeaseLost.
func testOneHolder(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.answer("k", Accepted)
	first := w.subscribe(broker.SubscribeOptions{Lease: time.Hour})
	d := w.next(first, deferral.Answered)
	w.idle()
	w.advance(2 * time.Hour) // the first consumer was silent
	second := w.take(deferral.Answered)
	if !second.Outcome().Again {
		w.Fatal("nobody says that it was handed out before")
	}
	w.is(d.Next(w.ctx(), time.Time{}), broker.ErrLeaseLost)
	w.is(d.Release(w.ctx(), 0), broker.ErrLeaseLost)
	w.is(d.Ack(w.ctx()), broker.ErrLeaseLost)
	w.ack(second)
}

// testRenewed expects that a subscription renews leases until its Close. A holder that loses a
// deferral sees its Lost channel closed.
func testRenewed(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.defers(attempt("t2", 0), "l", time.Hour, deferral.Status{})
	w.answer("k", Accepted)
	b := w.subscribe(broker.SubscribeOptions{Lease: 600 * time.Millisecond})
	d := w.next(b, deferral.Answered)
	other := w.subscribe(broker.SubscribeOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // more than three leases
	defer cancel()
	if _, err := other.Receive(ctx); err == nil {
		w.Fatal("it was handed out twice while its lease was renewed")
	}
	w.close(b) // its leases are no longer renewed
	again := w.next(other, deferral.Answered)
	select {
	case <-d.Lost():
		w.Error("a closed subscription still renews")
	default:
	}
	w.is(d.Ack(w.ctx()), broker.ErrLeaseLost)
	w.ack(again) // or other would claim it once more after an hour, in place of the next one

	w.answer("l", Accepted)
	holder := w.subscribe(broker.SubscribeOptions{Lease: 600 * time.Millisecond})
	d = w.next(holder, deferral.Answered)
	end := w.ctx()
	for taken := false; !taken; { // the first one may renew its lease in between
		w.advance(time.Hour)
		ctx, cancel := context.WithTimeout(end, w.h.Slack)
		_, err := other.Receive(ctx)
		cancel()
		taken = err == nil
		if end.Err() != nil {
			w.Fatal("another consumer does not get what nobody renews")
		}
	}
	select {
	case <-d.Lost():
	case <-w.ctx().Done():
		w.Error("the first holder does not hear that another one has it")
	}
}

// testGivenBack expects that a released deferral comes again after its time. Close gives back the
// deferrals that Receive has not returned.
func testGivenBack(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.answer("k", Accepted)
	d := w.take(deferral.Answered)
	w.must(d.Release(w.ctx(), time.Minute))
	w.is(d.Ack(w.ctx()), broker.ErrLeaseLost)
	w.idle()
	w.advance(time.Minute)
	w.ack(w.take(deferral.Answered))

	for _, id := range []string{"t2", "t3"} {
		w.defers(attempt(id, 0), id, time.Hour, deferral.Status{})
		w.answer(id, Accepted)
	}
	b := w.subscribe(broker.SubscribeOptions{})
	w.next(b, deferral.Answered)
	w.close(b)
	w.ack(w.take(deferral.Answered)) // the other consumer
}

// testWoken expects that Scan names the tasks of a queue that await answers, and that Wake delivers
// them as Woken. It is skipped if the store is not a Waker.
func testWoken(w *world) {
	waker, ok := capability.As[deferral.Waker](w.s)
	if !ok {
		w.Skip("the store is no Waker")
	}
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	w.reserve(attempt("t2", 0), "l")
	far := attempt("t3", 0)
	far.Queue = "other"
	w.defers(far, "m", 3*time.Hour, deferral.Status{})
	var found []string
	w.must(waker.Scan(w.ctx(), "q", func(id task.ID, state []byte) bool {
		found = append(found, string(id)+string(state))
		return true
	}))
	if !slices.Equal(found, []string{`t1{"of":"t1"}`}) {
		w.Fatalf("found %v", found)
	}
	w.must(waker.Wake(w.ctx(), "t1", "t2", "t9"))
	w.must(w.take(deferral.Woken).Release(w.ctx(), 2*time.Hour))
	w.idle()
	w.advance(time.Hour) // at its deadline
	w.must(w.take(deferral.TimedOut).Release(w.ctx(), 0))
	w.ack(w.take(deferral.TimedOut))
	w.must(waker.Wake(w.ctx(), "t1", "t3")) // one of them is over
	w.ack(w.take(deferral.Woken))
	w.answer("m", Late)
	w.must(waker.Wake(w.ctx()))
	w.idle()
}

// testDropped expects that Drop frees the key and deletes the answer. An older attempt drops
// nothing, and its Reserve is stale.
func testDropped(w *world) {
	a := attempt("t1", 0)
	w.reserve(a, "k")
	w.must(w.s.Drop(w.ctx(), a))
	w.must(w.s.Drop(w.ctx(), a))
	w.reserve(attempt("t2", 0), "k")
	w.is(w.s.Reserve(w.ctx(), a, "k"), deferral.ErrRefused)
	w.reserve(attempt("t2", 1), "k") // a later attempt of the same task may reserve it
	w.is(w.s.Reserve(w.ctx(), attempt("t2", 0), "k"), deferral.ErrStale)
	w.must(w.s.Drop(w.ctx(), attempt("t2", 0))) // an older attempt drops nothing
	w.answer("k", Accepted)
	w.must(w.s.Drop(w.ctx(), attempt("t2", 1))) // it needs no answer
	w.answer("k", Early)
}

// testDroppedUnlessAnswered expects that DropUnanswered drops an attempt without an answer. It
// defers an attempt that has an answer or a refusal, also if an earlier attempt of the task got it.
// An answer that was to continue the task settles no attempt that does not resume.
func testDroppedUnlessAnswered(w *world) {
	unanswered := func(a deferral.Attempt, want bool) {
		w.Helper()
		if got, err := w.s.DropUnanswered(w.ctx(), a); err != nil || got != want {
			w.Fatalf("DropUnanswered: %v, %v; want %v", got, err, want)
		}
	}
	a := attempt("t1", 0)
	unanswered(a, false)
	w.reserve(a, "k")
	unanswered(a, false)
	w.answer("k", Early)
	b := attempt("t2", 0)
	w.reserve(b, "l")
	w.answer("l", Accepted)
	unanswered(b, true)
	unanswered(b, true)
	w.overtaken(b, true)
	w.ack(w.take(deferral.Answered))
	_, err := w.s.DropUnanswered(w.ctx(), b)
	w.is(err, deferral.ErrStale)
	w.reserve(attempt("t3", 0), "m")
	w.refuse("m", "no")
	unanswered(attempt("t3", 1), true) // the next attempt has reserved nothing
	if d := w.take(deferral.Refused); d.Attempt().Generation != 1 || d.Outcome().Refusal != "no" {
		w.Errorf("%+v, %+v", d.Attempt(), d.Outcome())
	} else {
		w.ack(d)
	}
	c, resuming := attempt("t4", 0), attempt("t4", 0)
	resuming.State = []byte(`{"resumed":{"of":"t4"}}`)
	w.reserve(resuming, "n")
	w.answer("n", Accepted)
	unanswered(c, false) // it did not get as far as the wait
	w.idle()
	w.reserve(resuming, "o")
	w.answer("o", Accepted)
	unanswered(resuming, true)
	if d := w.take(deferral.Answered); !new(d.Attempt()).Resumes() {
		w.Errorf("%+v", d.Attempt())
	}
}

// testDroppedLater shows that a later attempt drops the open deferral of an earlier one, also if a
// message was put back in between.
func testDroppedLater(w *world) {
	w.defers(attempt("t1", 0), "k", 0, deferral.Status{})
	w.must(w.take(deferral.TimedOut).Next(w.ctx(), time.Time{}))
	w.must(w.s.Drop(w.ctx(), attempt("t1", 2)))
	w.answer("k", Early)
	w.defers(attempt("t2", 0), "k", time.Hour, deferral.Status{Answered: true})
	w.must(w.s.Drop(w.ctx(), attempt("t2", 1))) // it is deferred
	w.ack(w.take(deferral.Answered))
}

// testRefusals expects ErrRefused for missing, long and invalid keys and for a state above 1 MiB.
// No error text contains a raw NUL.
func testRefusals(w *world) {
	large := attempt("t1", 0)
	large.State = make([]byte, 1<<20+1)
	deferred := func(key string) error {
		_, err := w.s.Defer(w.ctx(), attempt("t1", 0), key, time.Hour)
		return err
	}
	for name, err := range map[string]error{
		"no key":       w.s.Reserve(w.ctx(), attempt("t1", 0), ""),
		"a long key":   w.s.Reserve(w.ctx(), attempt("t1", 0), strings.Repeat("k", 1<<10)),
		"large":        w.s.Reserve(w.ctx(), large, "k"),
		"never a key":  deferred(""),
		"a broken key": deferred("a\x00"),
	} {
		w.is(err, deferral.ErrRefused)
		if strings.Contains(err.Error(), "\x00") {
			w.Errorf("%s: %q", name, err)
		}
	}
	w.idle()
}

// testQueues expects that a subscription delivers only deferrals of its queues, which SetQueues
// changes, and holds at most Prefetch. After Close a delivery can still be settled.
func testQueues(w *world) {
	other := attempt("t1", 0)
	other.Queue = "other"
	w.defers(other, "k", 0, deferral.Status{})
	for i, key := range []string{"l", "m", "n"} {
		w.defers(attempt(fmt.Sprint("t", i+2), 0), key, 0, deferral.Status{})
	}
	b := w.subscribe(broker.SubscribeOptions{Prefetch: 2}, "q")
	first := w.next(b, deferral.TimedOut)
	w.next(b, deferral.TimedOut)
	w.nothing(b)
	w.ack(first)
	third := w.next(b, deferral.TimedOut)
	w.nothing(b)
	w.close(b)
	w.must(third.Release(w.ctx(), 0)) // deliveries of a closed subscription can be settled
	all := w.subscribe(broker.SubscribeOptions{})
	all.SetQueues(nil)
	w.nothing(all)
	all.SetQueues([]string{"other"})
	if d := w.next(all, deferral.TimedOut); d.Attempt().Queue != "other" {
		w.Errorf("%+v", d.Attempt())
	}
	w.nothing(all)
	all.SetQueues([]string{"q"})
	w.next(all, deferral.TimedOut)
	w.nothing(all)
}

// testNotified expects that a waiting Receive returns soon after the answer comes.
func testNotified(w *world) {
	w.defers(attempt("t1", 0), "k", time.Hour, deferral.Status{})
	b := w.subscribe(broker.SubscribeOptions{})
	w.nothing(b)
	received := make(chan deferral.Delivery, 1)
	go func() {
		if d, err := b.Receive(w.ctx()); err == nil {
			received <- d
		}
	}()
	w.answer("k", Accepted)
	select {
	case d := <-received:
		w.ack(d)
	case <-w.ctx().Done():
		w.Error("it does not hear of the answer")
	}
}

// testClosed expects that Close ends a waiting Receive with ErrClosed and may be repeated.
func testClosed(w *world) {
	b := w.subscribe(broker.SubscribeOptions{})
	ended := make(chan error, 1)
	go func() {
		_, err := b.Receive(w.ctx())
		ended <- err
	}()
	w.close(b)
	w.close(b)
	w.is(<-ended, deferral.ErrClosed)
	_, err := b.Receive(w.ctx())
	w.is(err, deferral.ErrClosed)
}

// testMany defers and answers 50 tasks from two goroutines while two consumers receive. It expects
// that each task is delivered once.
func testMany(w *world) {
	const tasks = 50
	var mu sync.Mutex
	claimed := map[task.ID]int{}
	var working sync.WaitGroup
	settled := make(chan struct{})
	for n := range 2 {
		working.Go(func() {
			for i := range tasks {
				if _, err := w.s.Defer(w.ctx(), attempt(fmt.Sprint("many-", i), 0), fmt.Sprint(i), time.Hour); err != nil && !errors.Is(err, deferral.ErrStale) {
					w.Error(err)
				}
				if _, err := w.h.Answer(w.ctx(), "ask", fmt.Sprint(i), "1", ""); err != nil {
					w.Error(err)
				}
			}
		})
		b, err := w.h.Open(w.T).Subscribe(w.ctx(), []string{"q"}, broker.SubscribeOptions{Prefetch: 1 + n, Lease: time.Minute})
		w.must(err)
		w.Cleanup(func() { w.close(b) })
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for {
				d, err := b.Receive(ctx)
				if err != nil {
					return
				}
				if err := d.Ack(ctx); err != nil {
					w.Error(err)
				}
				mu.Lock()
				claimed[d.Attempt().Task]++
				if len(claimed) == tasks {
					select {
					case <-settled:
					default:
						close(settled)
					}
				}
				mu.Unlock()
			}
		}()
	}
	working.Wait()
	select {
	case <-settled:
	case <-w.ctx().Done():
	}
	mu.Lock()
	defer mu.Unlock()
	if len(claimed) != tasks {
		w.Errorf("%d of %d were delivered", len(claimed), tasks)
	}
	for id, n := range claimed {
		if n != 1 {
			w.Errorf("%s was delivered %d times", id, n)
		}
	}
}
