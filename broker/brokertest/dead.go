package brokertest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
)

// deadCases returns the cases of dead letters besides those of scanCases.
func deadCases() []testCase {
	return []testCase{
		{
			Area: "dead letters", Name: "byte for byte, with the reason", Needs: []need{needsDeadLetters},
			Explain: "DeadLetter moves the message, byte for byte, to the dead letters of its queue, with the cause as the reason; ListDead returns its queue and time.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "bury")
				want := fullMessage()
				want.Body = []byte{0, 0xff, '\n', 0}
				sent := *want
				w.publish(b, q, &sent)
				before := time.Now()
				w.deadLetter(b, q, "it was ☠ poison")
				dead := w.listDead(w.Open(), q, 10, 1)
				d := dead[0]
				if diff := diffMessage(want, d.Message); diff != "" {
					w.Errorf("the dead letter is not what was published (-sent +dead):\n%s", diff)
				}
				if d.Queue != q {
					w.Errorf("Queue %q, want %q", d.Queue, q)
				}
				if w.h.Promises.Reasonless {
					if d.Reason != "" || !d.At.IsZero() {
						w.Errorf("Reason %q and At %v, although the adapter promises to have neither", d.Reason, d.At)
					}
					return
				}
				if d.Reason != "it was ☠ poison" {
					w.Errorf("Reason %q, want %q", d.Reason, "it was ☠ poison")
				}
				if d.At.Before(before.Add(-w.Slack-time.Second)) || d.At.After(time.Now().Add(w.Slack+time.Second)) {
					w.Errorf("At is %v, it was buried after %v", d.At, before)
				}
			},
		},
		{
			Area: "dead letters", Name: "a reason of any text", Needs: []need{needsDeadLetters},
			Explain: "The reason is the text of an error, which may be long, empty or not UTF-8: DeadLetter accepts it, and cuts it if necessary.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "reasons")
				reasons := []string{"", "a\x00b\r\nc", "\xff\xfe", strings.Repeat("long ", 20_000)}
				for i := range reasons {
					w.publish(b, q, msg(fmt.Sprint(i)))
				}
				for _, r := range reasons {
					w.deadLetter(b, q, r)
				}
				w.listDead(b, q, 10, len(reasons))
				w.nothing(w.subscribe(b, q, 0), "after DeadLetter")
			},
		},
		{
			Area: "dead letters", Name: "oldest first, and they stay", Needs: []need{needsDeadLetters},
			Explain: "ListDead returns up to n dead letters of a queue, oldest first, and removes none. Letters of other queues are not among them.",
			Run: func(w *world) {
				b := w.Open()
				q, q2 := w.queue(b, "list"), w.queue(b, "list2")
				for i := range 5 {
					w.publish(b, q, msg(fmt.Sprint(i)))
					w.deadLetter(b, q, "why")
				}
				w.listDead(b, q, 100, 5)
				for range 2 {
					for i, d := range w.listDead(b, q, 3, 3) {
						if d.Message.ID != fmt.Sprint(i) {
							w.Errorf("dead letter %d is %s", i, name(d.Message))
						}
					}
				}
				w.listDead(b, q2, 100, 0)
			},
		},
		{
			Area: "dead letters", Name: "PurgeDead", Needs: []need{needsDeadLetters},
			Explain: "PurgeDead removes the dead letters of a queue and returns their number; waiting messages stay.",
			Run: func(w *world) {
				b := w.Open()
				q := w.queue(b, "purge")
				for i := range 3 {
					w.publish(b, q, msg(fmt.Sprint(i)))
					w.deadLetter(b, q, "why")
				}
				w.listDead(b, q, 10, 3)
				w.publish(b, q, msg("alive"))
				dl := w.deadLetterer(b)
				w.counts(func(ctx context.Context) (int, error) { return dl.PurgeDead(ctx, q) }, 3, "PurgeDead")
				w.counts(func(ctx context.Context) (int, error) { return dl.PurgeDead(ctx, q) }, 0, "PurgeDead of none")
				w.listDead(b, q, 10, 0)
				w.drain(w.subscribe(b, q, 0), "alive/0")
			},
		},
	}
}

// Requeue publishes the dead letters of a queue as messages of the next Generation, the oldest
// first, removes them, and returns their number. It stops at the first error and returns it; that
// letter stays. Returns ErrUnsupported if b is not a DeadLetterer. It is for adapters' own tests.
func Requeue(ctx context.Context, b broker.Broker, queue string) (n int, err error) {
	dl, ok := capability.As[broker.DeadLetterer](b)
	if !ok {
		return 0, broker.ErrUnsupported
	}
	var failed error
	err = dl.ScanDead(ctx, queue, func(d *broker.Dead) broker.DeadAction {
		next := *d.Message
		next.Generation++
		if failed = b.Publish(ctx, queue, &next); failed != nil {
			return broker.DeadStop
		}
		n++
		return broker.DeadRemove
	})
	return n, cmp.Or(failed, err)
}

// deadLetterer returns b as a DeadLetterer. It fails the case at once if b is not a DeadLetterer.
func (w *world) deadLetterer(b broker.Broker) broker.DeadLetterer {
	w.Helper()
	dl, ok := capability.As[broker.DeadLetterer](b)
	if !ok {
		w.Fatal("DeadLetters are promised and there is no broker.DeadLetterer")
	}
	return dl
}

// deadLetter receives one message of the queue and dead-letters it with the given reason. An error
// fails the case at once.
func (w *world) deadLetter(b broker.Broker, queue, reason string) {
	w.Helper()
	s := w.subscribe(b, queue, 1)
	d := w.receive(s)
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(d.DeadLetter(ctx, broker.Dead{Reason: reason}), "DeadLetter")
	w.closeSub(s)
}

// listDead polls until ListDead with the limit n returns want dead letters, and returns these. A
// server may move them a moment after the settlement has returned. If they do not appear within the
// suite's patience, it fails the case at once.
func (w *world) listDead(b broker.Broker, queue string, n, want int) []broker.Dead {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	var dead []broker.Dead
	w.Until(fmt.Sprintf("ListDead(%q, %d) of %d dead letters", queue, n, want), func() bool {
		var err error
		dead, err = broker.ListDead(ctx, b, queue, n)
		if err == nil && len(dead) > n {
			w.Fatalf("ListDead(%d) returned %d", n, len(dead))
		}
		return w.Clean(err) == nil && len(dead) == want
	})
	return dead
}

// counts calls call and expects that it returns the number want without an error. what names the
// call in a failure.
func (w *world) counts(call func(ctx context.Context) (int, error), want int, what string) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	n, err := call(ctx)
	w.Must(err, "%s", what)
	if n != want {
		w.Errorf("%s returned %d, want %d", what, n, want)
	}
}
