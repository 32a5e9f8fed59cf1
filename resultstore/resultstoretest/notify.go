package resultstoretest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// wrapper is a store that wraps another one without its optional interfaces, as users write it.
type wrapper struct{ resultstore.ResultStore }

// Unwrap returns the wrapped store, so that capability.As finds its optional interfaces.
func (w wrapper) Unwrap() any { return w.ResultStore }

// notifyCases returns the cases of streams of notifications and replies.
func notifyCases() []testCase {
	return []testCase{
		{
			Area: "notify", Name: "the store says what it is",
			Explain: "A producer asks the store whether it notifies and whether it keeps records; with a wrong answer it waits forever. A capability without its promise would be untested.",
			Run: func(w *world) {
				s := w.Open()
				if got, want := resultstore.RepliesOnly(s), w.h.Promises.RepliesOnly; got != want {
					w.Errorf("RepliesOnly is %v, promised is %v", got, want)
				}
				if _, got := capability.As[resultstore.Notifier](s); got != (w.h.Promises.Notify && !w.h.Promises.RepliesOnly) {
					w.Errorf("the store is a Notifier: %v, promised is Notify %v, RepliesOnly %v", got, w.h.Promises.Notify, w.h.Promises.RepliesOnly)
				}
			},
		},
		{
			Area: "notify", Name: "a wrapper keeps every capability",
			Explain: "Users wrap stores to count or to log. The optional capabilities of the store are found through a wrapper with an Unwrap method.",
			Run: func(w *world) {
				s := w.Open()
				suite.Keeps(w, s, wrapper{s}, suite.CapabilityOf[resultstore.Notifier](), suite.CapabilityOf[resultstore.Replier](),
					suite.CapabilityOf[resultstore.Gatherer](), suite.CapabilityOf[resultstore.Claimer](), suite.CapabilityOf[resultstore.Swapper](), suite.CapabilityOf[resultstore.BatchSaver]())
				if got, want := resultstore.RepliesOnly(wrapper{s}), resultstore.RepliesOnly(s); got != want {
					w.Errorf("RepliesOnly of a wrapper is %v, want %v", got, want)
				}
				if got, want := resultstore.GathererOf(nil, wrapper{s}), resultstore.GathererOf(nil, s); got != want {
					w.Errorf("GathererOf of a wrapper is %T, want %T", got, want)
				}
				if got, want := resultstore.ClaimerOf(nil, wrapper{s}), resultstore.ClaimerOf(nil, s); got != want {
					w.Errorf("ClaimerOf of a wrapper is %T, want %T", got, want)
				}
			},
		},
		{
			Area: "notify", Name: "every field makes the round trip",
			Explain: "A submitter uses a notification as the record; a reply queue gives it no other one.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				node := w.node("submitter")
				n := w.notify(submitter, node)
				rapid.Check(w.TB, func(t *rapid.T) {
					want := record(w.id(), node).Draw(t, "record")
					w.save(worker, want)
					if diff := diffRecord(want, w.receive(n)); diff != "" {
						t.Fatalf("the record changed (-saved +received):\n%s", diff)
					}
				})
			},
		},
		{
			Area: "notify", Name: "a result of 1 MiB",
			Explain: "Tasks decide how large results are, so 1 MiB must arrive.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("submitter"))
				r := with(w.succeeded(w.node("submitter")), func(r *resultstore.Record) { r.Result = noise(1 << 20) })
				w.save(worker, r)
				if diff := diffRecord(r, w.receive(n)); diff != "" {
					w.Errorf("the record changed (-saved +received):\n%s", diff)
				}
			},
		},
		{
			Area: "notify", Name: "one stream for all tasks",
			Explain: "One stream serves all tasks of a submitter, whichever consumers ran them: a queue or subscription for each task would cost more than the task.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				node := w.node("submitter")
				n := w.notify(w.Open(), node)
				workers := []resultstore.ResultStore{w.Open(), w.Open()}
				waiting := map[task.ID]bool{}
				for i := range 200 {
					r := w.succeeded(node)
					waiting[r.ID] = true
					w.save(workers[i%2], r)
				}
				w.drain(n, waiting)
			},
		},
		{
			Area: "notify", Name: "only the node's own records",
			Explain: "The stream holds exactly the records whose ReplyTo is the node: no records of another node, and no records without ReplyTo.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, other, worker := w.Open(), w.Open(), w.Open()
				mine := w.notify(submitter, w.node("a"))
				theirs := w.notify(other, w.node("b"))
				alike := w.notify(other, w.node("a.b"))
				r := w.succeeded(w.node("b"))
				w.save(worker, r)
				if !w.h.Promises.RepliesOnly {
					w.save(worker, w.succeeded(""))
				}
				if got := w.receive(theirs); got.ID != r.ID {
					w.Errorf("received %s, want %s", show(got), show(r))
				}
				w.nothing(mine, "a record for another node")
				w.nothing(alike, "a record for another node")
			},
		},
		{
			Area: "notify", Name: "only terminal records",
			Explain: "The stream holds only terminal records: a submitter treats each record as the end of its task.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				r := w.succeeded(w.node("n"))
				w.save(worker, token(r, task.StateStarted, 0, 1), token(r, task.StateAwaiting, 0, 1), token(r, task.StateRetrying, 0, 1))
				final := token(r, task.StateFailed, 1, 1)
				w.save(worker, final)
				if diff := diffRecord(final, w.receive(n)); diff != "" {
					w.Errorf("the first record that came is not the terminal one (-want +got):\n%s", diff)
				}
			},
		},
		{
			Area: "notify", Name: "why a task waits",
			Explain: "The stream of a Replier also has open records with an error: a submitter has no other way to learn why a task waits.",
			Needs:   []need{needsReplies},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				r := with(token(w.succeeded(w.node("n")), task.StateRetrying, 0, 1), func(r *resultstore.Record) {
					r.ContentType, r.Result, r.Error = "", nil, &task.RemoteError{Type: "t", Message: "nobody knows how"}
				})
				w.save(worker, r)
				if diff := diffRecord(r, w.receive(n)); diff != "" {
					w.Errorf("the record changed (-saved +received):\n%s", diff)
				}
			},
		},
		{
			Area: "notify", Name: "the end of a new life",
			Explain: "If a failed task is requeued and then succeeds, the stream delivers the new end and not the requeueing.",
			Needs:   []need{needsNotify, needsRecords},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				r := w.succeeded(w.node("n"))
				first := token(r, task.StateFailed, 0, 1)
				w.save(worker, first)
				if diff := diffRecord(first, w.receive(n)); diff != "" {
					w.Errorf("the first end (-want +got):\n%s", diff)
				}
				second := token(r, task.StateSucceeded, 1, 1)
				w.save(worker, token(r, task.StateRequeued, 1, 0), second)
				if diff := diffRecord(second, w.receive(n)); diff != "" {
					w.Errorf("what came after the first end (-want +got):\n%s", diff)
				}
			},
		},
		{
			Area: "notify", Name: "every kind of end",
			Explain: "A submitter must also receive the records of failed, revoked and expired tasks.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				for _, state := range []task.State{task.StateSucceeded, task.StateFailed, task.StateRevoked, task.StateExpired} {
					r := token(w.succeeded(w.node("n")), state, 0, 1)
					w.save(worker, r)
					if got := w.receive(n); got.ID != r.ID || got.State != state {
						w.Errorf("received %s, want %s", show(got), show(r))
					}
				}
			},
		},
		{
			Area: "notify", Name: "from now on",
			Explain: "A stream begins when Notify returns. Load finds records that were saved before.",
			Needs:   []need{needsNotify, needsRecords},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				early, late := w.succeeded(w.node("n")), w.succeeded(w.node("n"))
				witness := w.notify(submitter, w.node("n"))
				w.save(worker, early)
				w.receive(witness) // a notification may still be on its way after Save returned
				w.closeStream(witness)
				n := w.notify(submitter, w.node("n"))
				w.save(worker, late)
				if got := w.receive(n); got.ID != late.ID {
					w.Errorf("received %s, want %s: the stream holds what was saved before Notify", show(got), show(late))
				}
			},
		},
		{
			Area: "notify", Name: "visible before the notification",
			Explain: "A submitter that received a notification may call Load at once.",
			Needs:   []need{needsNotify, needsRecords},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				for range 20 {
					w.save(worker, w.succeeded(w.node("n")))
					r := w.receive(n)
					w.wantLoad(submitter, r, "Load of what the stream announced")
				}
			},
		},
		{
			Area: "notify", Name: "several streams of a node",
			Explain: "Each record is delivered to at least one stream of its node.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				node := w.node("n")
				streams := []resultstore.Notifications{w.notify(submitter, node), w.notify(submitter, node)}
				waiting := map[task.ID]bool{}
				got := make(chan task.ID, 1000)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{}, len(streams))
				for _, n := range streams {
					go func() {
						defer func() { done <- struct{}{} }()
						for {
							r, err := n.Receive(ctx)
							if err != nil {
								return
							}
							got <- r.ID
						}
					}()
				}
				for range 50 {
					r := w.succeeded(node)
					waiting[r.ID] = true
					w.save(worker, r)
				}
				for len(waiting) > 0 {
					delete(waiting, suite.Ends(w.World, got, fmt.Sprintf("%d of 50 records", len(waiting))))
				}
				cancel()
				for range streams {
					suite.Ends(w.World, done, "Receive after its context ended")
				}
			},
		},
		{
			Area: "notify", Name: "Receive ends with its context",
			Explain: "Receive returns ctx's error when ctx ends, and loses no record.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n := w.notify(submitter, w.node("n"))
				w.nothing(n, "an empty stream")
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { _, err := n.Receive(ctx); ended <- err }()
				cancel()
				w.WantIs(suite.Ends(w.World, ended, "Receive after its context was cancelled"), context.Canceled, "Receive")
				r := w.succeeded(w.node("n"))
				w.save(worker, r)
				if got := w.receive(n); got.ID != r.ID {
					w.Errorf("received %s, want %s", show(got), show(r))
				}
			},
		},
		{
			Area: "notify", Name: "a stuck submitter holds nobody up",
			Explain: "A stream without a reader must not block Save: a consumer must not stop because one submitter hangs.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				w.notify(submitter, w.node("stuck"))
				n := w.notify(submitter, w.node("quick"))
				for range cmp.Or(w.h.Unread, 2000) {
					w.save(worker, w.succeeded(w.node("stuck")))
				}
				r := w.succeeded(w.node("quick"))
				w.save(worker, r)
				if got := w.receive(n); got.ID != r.ID {
					w.Errorf("received %s, want %s", show(got), show(r))
				}
			},
		},
		{
			Area: "notify", Name: "no other process finds a reply",
			Explain: "A Replier keeps no records: Load never finds a record that another process saved.",
			Needs:   []need{needsReplies},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				w.notify(submitter, w.node("n"))
				r := w.succeeded(w.node("n"))
				w.save(worker, r)
				w.wantNone(submitter, r.ID, "Load of a reply")
			},
		},
		{
			Area: "notify", Name: "a reply to nobody",
			Explain: "ErrUnreachable reports that the reply queue of the submitter is gone and no process will read the record. Repeating does not help, and the consumer must learn it.",
			Needs:   []need{needsReplies},
			Run: func(w *world) {
				worker := w.Open()
				w.WantIs(w.trySave(worker, w.succeeded(w.node("nobody"))), resultstore.ErrUnreachable, "Save for a node that never listened")
			},
		},
		{
			Area: "notify", Name: "a lost queue is told of",
			Explain: "A Replier that finds its reply queue gone returns ErrLost once, makes the queue again and continues: a future must not wait for a record that is lost.",
			Needs:   []need{needsReplies},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				node := w.node("n")
				n := w.notify(submitter, node)
				for range 2 {
					w.h.Lose(w.TB, node)
					ctx, cancel := w.Ctx()
					_, err := n.Receive(ctx)
					cancel()
					w.WantIs(err, resultstore.ErrLost, "Receive after the queue was lost")
					r := w.succeeded(node)
					w.Until("the new queue takes a record", func() bool { // the server may need a moment
						err := w.trySave(worker, r)
						if err != nil {
							w.WantIs(err, resultstore.ErrUnavailable, "Save after the queue was lost")
						}
						return err == nil
					})
					if got := w.receive(n); got.ID != r.ID {
						w.Errorf("received %s, want %s", show(got), show(r))
					}
				}
			},
		},
		{
			Area: "notify", Name: "nothing is ready without a queue",
			Explain: "Ready waits from the loss of the reply queue until Receive has returned ErrLost: a producer that submitted tasks before that would miss their end.",
			Needs:   []need{needsReplies},
			Run: func(w *world) {
				node := w.node("n")
				n := w.replies(w.Open(), node)
				ctx, cancel := w.Ctx()
				defer cancel()
				w.Must(n.Ready(ctx), "Ready of a stream that was just opened")
				lose := func() <-chan error {
					w.Helper()
					w.h.Lose(w.TB, node)
					w.Until("the stream sees that its queue is gone", func() bool {
						now, cancel := context.WithCancel(ctx)
						cancel()
						err := n.Ready(now)
						if err != nil {
							w.WantIs(err, resultstore.ErrUnavailable, "Ready without a queue")
						}
						return err != nil
					})
					ended := make(chan error, 1)
					go func() { ended <- n.Ready(ctx) }()
					return ended
				}
				ended := lose()
				_, err := n.Receive(ctx)
				w.WantIs(err, resultstore.ErrLost, "Receive after the queue was lost")
				w.Must(suite.Ends(w.World, ended, "Ready after the loss was told"), "Ready")
				ended = lose()
				w.closeStream(n)
				w.WantIs(suite.Ends(w.World, ended, "Ready of a stream that is closed"), resultstore.ErrClosed, "Ready")
			},
		},
		{
			Area: "notify", Name: "an ended stream",
			Explain: "Close ends the stream and makes a waiting Receive return ErrClosed. Further calls do nothing, and other streams continue.",
			Needs:   []need{needsNotify},
			Run: func(w *world) {
				submitter, worker := w.Open(), w.Open()
				n, other := w.notify(submitter, w.node("n")), w.notify(submitter, w.node("other"))
				ended := make(chan error, 1)
				go func() { _, err := n.Receive(context.Background()); ended <- err }()
				w.closeStream(n)
				w.WantIs(suite.Ends(w.World, ended, "a waiting Receive after Close"), resultstore.ErrClosed, "Receive")
				w.closeStream(n)
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := n.Receive(ctx)
				w.WantIs(err, resultstore.ErrClosed, "Receive of an ended stream")
				if err := w.trySave(worker, w.succeeded(w.node("n"))); err != nil && !errors.Is(err, resultstore.ErrUnreachable) {
					w.Errorf("Save for a node without a stream: %v", err)
				}
				r := w.succeeded(w.node("other"))
				w.save(worker, r)
				if got := w.receive(other); got.ID != r.ID {
					w.Errorf("received %s, want %s", show(got), show(r))
				}
			},
		},
	}
}

// drain receives records until all tasks in waiting have arrived. It removes each received one from
// waiting. It fails the case if Receive returns an error.
func (w *world) drain(n resultstore.Notifications, waiting map[task.ID]bool) {
	w.Helper()
	for total := len(waiting); len(waiting) > 0; {
		ctx, cancel := w.Ctx()
		r, err := n.Receive(ctx)
		cancel()
		w.Must(err, "Receive with %d of %d records missing", len(waiting), total)
		delete(waiting, r.ID)
	}
}
