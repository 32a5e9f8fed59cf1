// Package deferraltest is the test suite that every [deferral.Store] passes.
package deferraltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/task"
)

// Harness is an empty store of deferrals with its controls. The function given to [Run] makes one
// for each case and registers its clean-up.
type Harness struct {
	// Open returns the store as another process opens it.
	Open func(t testing.TB) deferral.Store
	// Answer gives an answer from outside, or a refusal if that is not "", and returns its receipt.
	Answer func(ctx context.Context, name, key, result, refusal string) (Receipt, error)
	// Advance moves the times of all deferrals into the past by d, as if d had passed. They belong to
	// the queues "q" and "other" and the tasks "t1" to "t9".
	Advance func(t testing.TB, d time.Duration)
	// Purge deletes the deferrals whose retention is over.
	Purge func(ctx context.Context) error
	// Slack is the time for which the suite waits before it concludes that nothing comes. Default:
	// 100ms.
	Slack time.Duration
}

// Receipt is the outcome of an answer.
type Receipt string

// The receipts.
const (
	Accepted  Receipt = "accepted"
	Early     Receipt = "early"
	Late      Receipt = "late"
	Duplicate Receipt = "duplicate"
)

// patience limits every wait. day is how long an attempt with a reserved key may be silent, and how
// long an ended deferral is remembered.
const (
	patience = time.Minute
	day      = task.DefaultAnswerWithin
)

// Run runs every case of the suite as a parallel subtest of t. It calls open once for each case. A
// case that fails logs the sentence that it tests.
func Run(t *testing.T, open func(t testing.TB) *Harness) {
	t.Helper()
	for _, c := range []struct {
		name, explain string
		run           func(w *world)
	}{
		{"Answered", "An answer for the reserved key settles the attempt, once; it is remembered for a day.", testAnswered},
		{"TimesOut", "When no answer comes in time the deferral is handed out as TimedOut, and answers are late.", testTimesOut},
		{"AnswerAfterATimeout", "What comes between a timeout and the next attempt is kept for that.", testAnswerAfterATimeout},
		{"Refused", "A refusal settles the attempt; the key stays open for the next one.", testRefused},
		{"Early", "An answer that comes before Defer, or before Reserve, counts if the key is the same.", testEarly},
		{"OneHolder", "A deferral has one holder: when its lease has ended another consumer gets it, and the first one hears so.", testOneHolder},
		{"Renewed", "The subscription renews the leases of what it has handed out.", testRenewed},
		{"GivenBack", "What is released is handed out again after the time, and not earlier; Close gives back what was not handed out.", testGivenBack},
		{"Woken", "Wake hands out what awaits an answer; Scan names it.", testWoken},
		{"Dropped", "What is dropped expects nothing; its key is free, and older attempts change nothing.", testDropped},
		{"DroppedUnlessAnswered", "DropUnanswered settles the attempt by an answer that was accepted for it, or for one before it. It drops one that was to continue the task.", testDroppedUnlessAnswered},
		{"DroppedLater", "A later attempt drops what one before it has left open, but not what nobody has claimed.", testDroppedLater},
		{"Abandoned", "An attempt that is silent for a day is handed out as Abandoned; to end it ends no attempt.", testAbandoned},
		{"AbandonedWithAnswer", "An accepted answer is never lost while its attempt may be repeated.", testAbandonedWithAnswer},
		{"AbandonedAtMostOnce", "The accepted answer of an attempt that nobody repeats settles it.", testAbandonedAtMostOnce},
		{"AnsweredWhileAbandoned", "An answer that is accepted while a consumer ends the abandoned attempt is kept.", testAnsweredWhileAbandoned},
		{"Refusals", "What cannot be kept is ErrRefused.", testRefusals},
		{"Queues", "A subscription receives what is of its queues, and no more than it may hold.", testQueues},
		{"Notified", "A subscription that waits hears of answers.", testNotified},
		{"Closed", "Receive ends with its ctx, and with the subscription.", testClosed},
		{"Many", "Each of many attempts is answered and handed out once.", testMany},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("why: " + c.explain)
				}
			})
			h := open(t)
			if h.Slack == 0 {
				h.Slack = 100 * time.Millisecond
			}
			c.run(&world{T: t, h: h, s: h.Open(t)})
		})
	}
}

// world is a case of the suite: the harness, a store and helpers. The helpers fail the case after
// an error of the store.
type world struct {
	*testing.T
	h *Harness
	s deferral.Store
}

// attempt returns an attempt of the task id in the queue "q", with a state that names the task.
func attempt(id string, generation int) deferral.Attempt {
	return deferral.Attempt{Queue: "q", Name: "ask", Task: task.ID(id), Generation: generation, State: fmt.Appendf(nil, `{"of":%q}`, id)}
}

// ctx returns a context that ends after patience or with the case.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// must fails the case at once if err is not nil.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// is fails the case at once unless err wraps want.
func (w *world) is(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("error is %v, want %v", err, want)
	}
}

// reserve reserves key for the attempt a. An error fails the case at once.
func (w *world) reserve(a deferral.Attempt, key string) {
	w.Helper()
	if err := w.s.Reserve(w.ctx(), a, key); err != nil {
		w.Fatalf("Reserve %s: %v", key, err)
	}
}

// defers ends the attempt a with Defer. It fails the case at once after an error, or if the
// returned status is not want.
func (w *world) defers(a deferral.Attempt, key string, within time.Duration, want deferral.Status) {
	w.Helper()
	if got, err := w.s.Defer(w.ctx(), a, key, within); err != nil || got != want {
		w.Fatalf("Defer %s: %+v, %v; want %+v", key, got, err, want)
	}
}

// answer gives the answer "KEY!" to the task name "ask" and key. It fails the case at once after an
// error, or if the receipt is not want.
func (w *world) answer(key string, want Receipt) {
	w.Helper()
	if got, err := w.h.Answer(w.ctx(), "ask", key, `"`+key+`!"`, ""); err != nil || got != want {
		w.Fatalf("the answer for %s: %s, %v; want %s", key, got, err, want)
	}
}

// refuse gives a refusal with the reason why to the task name "ask" and key. It fails the case at
// once unless the refusal is accepted.
func (w *world) refuse(key, why string) {
	w.Helper()
	if got, err := w.h.Answer(w.ctx(), "ask", key, "", why); err != nil || got != Accepted {
		w.Fatalf("the refusal for %s: %s, %v", key, got, err)
	}
}

// overtaken fails the case at once unless Overtaken returns want for the attempt a.
func (w *world) overtaken(a deferral.Attempt, want bool) {
	w.Helper()
	if got, err := w.s.Overtaken(w.ctx(), a); err != nil || got != want {
		w.Fatalf("overtaken: %v, %v; want %v", got, err, want)
	}
}

// subscribe returns a subscription to the queues, by default "q" and "other", which the case closes
// at its end. Without o.Lease its leases last a minute, so only Advance ends them.
func (w *world) subscribe(o broker.SubscribeOptions, queues ...string) deferral.Subscription {
	w.Helper()
	if queues == nil {
		queues = []string{"other", "q"}
	}
	if o.Lease == 0 {
		o.Lease = time.Minute
	}
	b, err := w.s.Subscribe(w.ctx(), queues, o)
	w.must(err)
	w.Cleanup(func() { w.close(b) })
	return b
}

// close closes the subscription b. An error fails the case, which continues.
func (w *world) close(b deferral.Subscription) {
	w.Helper()
	if err := b.Close(w.ctx()); err != nil {
		w.Errorf("Close: %v", err)
	}
}

// next waits for the next delivery of b and returns it. It fails the case at once unless the
// outcome of the delivery has this kind.
func (w *world) next(b deferral.Subscription, kind deferral.Kind) deferral.Delivery {
	w.Helper()
	d, err := b.Receive(w.ctx())
	if err != nil || d.Outcome().Kind != kind {
		w.Fatalf("received %+v, %v; want one of kind %d", d, err, kind)
	}
	return d
}

// take receives the only due deferral through a subscription of its own and returns the delivery.
// It fails the case at once for another kind of outcome, or if a second deferral is due. It closes
// the subscription, so nothing renews the lease of the delivery.
func (w *world) take(kind deferral.Kind) deferral.Delivery {
	w.Helper()
	b := w.subscribe(broker.SubscribeOptions{})
	d := w.next(b, kind)
	w.nothing(b)
	w.close(b)
	return d
}

// idle fails the case at once if a deferral of the queues "q" or "other" is due.
func (w *world) idle() {
	w.Helper()
	b := w.subscribe(broker.SubscribeOptions{})
	w.nothing(b)
	w.close(b)
}

// nothing fails the case at once if b delivers a deferral within Harness.Slack. It waits for that
// time.
func (w *world) nothing(b deferral.Subscription) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.h.Slack)
	defer cancel()
	if d, err := b.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.Fatalf("received %+v, %v; want none", d, err)
	}
}

// ack settles d with Ack. An error fails the case at once.
func (w *world) ack(d deferral.Delivery) {
	w.Helper()
	w.must(d.Ack(w.ctx()))
}

// advance moves the times of all deferrals into the past by d (Harness.Advance).
func (w *world) advance(d time.Duration) {
	w.Helper()
	w.h.Advance(w.T, d)
}
