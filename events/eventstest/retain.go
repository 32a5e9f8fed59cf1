package eventstest

import (
	"context"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/task"
)

// long returns a retention that keeps all events of a case.
func long() events.Retention { return events.Retention{Age: time.Hour} }

// retain opens a bus that keeps events as r says.
func (w *world) retain(r events.Retention) events.EventBus {
	w.Helper()
	b := w.Own(w.h.Retain(w.TB, r))
	suite.Offer[events.Retainer](w, b)
	return b
}

// replay calls Replay and fails the case on an error.
func (w *world) replay(b events.EventBus, f events.Filter, since time.Time) events.Subscription {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	s, err := suite.Offer[events.Retainer](w, b).Replay(ctx, f, since)
	w.Must(err, "Replay")
	return s
}

// kept opens a stream of all events that b keeps.
func (w *world) kept(b events.EventBus) events.Subscription {
	w.Helper()
	return w.replay(b, events.Filter{}, time.Time{})
}

// pass blocks for the time d, for retentions that must run out.
func (w *world) pass(d time.Duration) {
	w.Helper()
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// upTo receives events up to and including that of task last, and returns them.
func (w *world) upTo(s events.Subscription, last task.ID) []events.Event {
	w.Helper()
	var es []events.Event
	for {
		e := w.receive(s)
		es = append(es, e)
		if e.TaskID == last {
			return es
		}
	}
}

// taskIDs returns the tasks of events in their order.
func taskIDs(es []events.Event) []task.ID {
	ids := make([]task.ID, len(es))
	for i, e := range es {
		ids[i] = e.TaskID
	}
	return ids
}

// retainCases returns the cases of the sentences of [events.Retainer].
func retainCases() []testCase {
	needs := []need{needsRetain}
	return []testCase{
		{
			Area: "retain", Name: "a late listener gets what was before",
			Explain: "The stream begins with the kept events, in the order in which the bus received them, and continues with new ones. No event arrives twice.",
			Needs:   needs,
			Run: func(w *world) {
				publisher := w.retain(long())
				old := w.send(publisher, 250)
				s := w.kept(w.retain(long()))
				w.wantAll(s, old, "events from before Replay")
				for range 3 {
					w.wantAll(s, w.send(publisher, 50), "events from after Replay")
				}
				w.nothing(s, "after each event came once")
			},
		},
		{
			Area: "retain", Name: "a Receive that waits",
			Explain: "The stream continues with new events: a waiting Receive returns the next one.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				s := w.kept(b)
				for range 3 {
					got := make(chan events.Event, 1)
					go func() {
						ctx, cancel := w.Ctx()
						defer cancel()
						e, err := s.Receive(ctx)
						if err != nil {
							w.Errorf("Receive: %v", w.Clean(err))
						}
						got <- e
					}()
					w.pass(50 * time.Millisecond) // so that Receive is waiting in most cases
					want := w.send(b, 1)[0]
					if e := suite.Ends(w.World, got, "a Receive that waited"); e.TaskID != want.TaskID {
						w.Fatalf("a Receive that waited returned %s, want %s", show(e), show(want))
					}
				}
			},
		},
		{
			Area: "retain", Name: "a publisher that has gone",
			Explain: "Late listeners receive kept events even if the publishing process has ended.",
			Needs:   needs,
			Run: func(w *world) {
				publisher := w.retain(long())
				old := w.send(publisher, 250)
				w.Close(publisher)
				w.wantAll(w.kept(w.retain(long())), old, "events of a bus that was closed")
			},
		},
		{
			Area: "retain", Name: "no gap and no repeat while others publish",
			Explain: "Between old and new events there is no gap and no duplicate, and every stream has the same order.",
			Needs:   needs,
			Run:     replayWhilePublishing,
		},
		{
			Area: "retain", Name: "every stream gets its own copy",
			Explain: "Each stream holds all kept events, also two streams of one process. A listener's change of an event is not visible to others.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				first := w.event()
				first.Fields = map[string]any{"k": "v", "deep": map[string]any{"list": []any{"x"}}}
				w.publish(b, first)
				es := append([]events.Event{first}, w.send(b, 20)...)
				streams := []events.Subscription{w.kept(b), w.kept(b), w.kept(w.retain(long()))}
				for i, s := range streams {
					got := w.receive(s)
					if got.TaskID != first.TaskID || got.Fields["k"] != "v" || got.Fields["deep"].(map[string]any)["list"].([]any)[0] != "x" {
						w.Errorf("stream %d begins with %s, %v", i, show(got), got.Fields)
						continue
					}
					got.Fields["k"] = "changed"
					got.Fields["deep"].(map[string]any)["list"].([]any)[0] = "changed"
					w.wantAll(s, es[1:], "stream %d", i)
				}
			},
		},
		{
			Area: "retain", Name: "since",
			Explain: "The stream begins with the events that the bus received at or after since.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				witness := w.kept(b)
				w.wantAll(witness, w.send(b, 120), "events that are too old")
				w.pass(w.Quiet / 2)
				since := time.Now()
				w.pass(w.Quiet / 2)
				newer := w.send(b, 120)
				w.wantAll(witness, newer, "events that are not")
				s := w.replay(b, events.Filter{}, since)
				w.wantAll(s, newer, "events since a time")
				w.wantAll(s, w.send(b, 20), "new events")
				w.nothing(s, "after each event came once")
			},
		},
		{
			Area: "retain", Name: "since a time to come",
			Explain: "An event that the bus received before since is not in the stream, even if since is later than all kept events.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				w.wantAll(w.kept(b), w.send(b, 20), "the kept events")
				w.pass(w.Quiet / 2)
				s := w.replay(b, events.Filter{}, time.Now())
				w.pass(w.Quiet / 2)
				w.wantAll(s, w.send(b, 20), "new events")
			},
		},
		{
			Area: "retain", Name: "a filter",
			Explain: "The stream holds exactly the old and new events that match its filter.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				mine := w.event()
				publish := func() (failed []events.Event) {
					for range 20 {
						for _, typ := range []string{events.TaskStarted, events.TaskFailed, "worker-online"} {
							e := w.event()
							e.Type = typ
							w.publish(b, e)
							if typ == events.TaskFailed {
								failed = append(failed, e)
							}
						}
					}
					w.publish(b, mine)
					return failed
				}
				want := publish()
				byType := w.replay(b, events.Filter{Types: []string{events.TaskFailed}}, time.Time{})
				byTask := w.replay(b, events.Filter{TaskID: mine.TaskID, Types: []string{mine.Type}}, time.Time{})
				want = append(want, publish()...)
				w.wantAll(byType, want, "a filter of one type")
				w.wantAll(byTask, []events.Event{mine, mine}, "a filter of one task")
				w.nothingAll([]events.Subscription{byType, byTask}, "after all events of the type, or task")
			},
		},
		{
			Area: "retain", Name: "kept types",
			Explain: "The stream holds only events of kept types, old and new ones. Live subscriptions receive all events.",
			Needs:   needs,
			Run: func(w *world) {
				r := long()
				r.Types = []string{events.TaskFailed, "worker-online"}
				b := w.retain(r)
				live := w.all(b)
				publish := func() (all, kept []events.Event) {
					for range 20 {
						for _, typ := range []string{events.TaskStarted, events.TaskFailed, "worker-online", "worker-offline"} {
							e := w.event()
							e.Type = typ
							w.publish(b, e)
							all = append(all, e)
							if r.Keeps(typ) {
								kept = append(kept, e)
							}
						}
					}
					return all, kept
				}
				all, want := publish()
				s := w.kept(b)
				moreAll, more := publish()
				w.wantAll(s, append(want, more...), "a stream of kept types")
				w.wantAll(live, append(all, moreAll...), "a live subscription")
				w.nothing(s, "after all events of kept types")
			},
		},
		{
			Area: "retain", Name: "live subscriptions are as before",
			Explain: "All other promises of the bus hold: a subscription misses earlier events and receives each new event once.",
			Needs:   needs,
			Run: func(w *world) {
				publisher, listener := w.retain(long()), w.retain(long())
				early := w.all(listener)
				old := w.send(publisher, 20)
				w.wantAll(early, old, "the early listener")
				w.wantAll(w.kept(listener), old, "a stream of what is kept")
				late := w.all(listener)
				next := w.send(publisher, 250)
				w.wantAll(late, next, "the late listener")
				w.wantAll(early, next, "the early listener")
				w.nothingAll([]events.Subscription{late, early}, "after each event came once")
			},
		},
		{
			Area: "retain", Name: "the fields of each type",
			Explain: "A kept event has the same fields as a live one.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				types := []string{
					events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded, events.TaskFailed,
					events.TaskRevoked, "worker-heartbeat",
				}
				for _, typ := range types {
					w.publish(b, full(typ))
				}
				s := w.kept(b)
				for _, typ := range types {
					want := full(typ)
					err := events.Normalize(&want)
					w.Must(err, "Normalize")
					if diff := cmp.Diff(want, w.receive(s)); diff != "" {
						w.Errorf("%s (-want +received):\n%s", typ, diff)
					}
				}
			},
		},
		{
			Area: "retain", Name: "what is no event",
			Explain: "An event without a type or with an invalid task id is not kept, and is counted once.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				before := w.event()
				w.publish(b, before)
				w.publish(b, events.Event{TaskID: "no-type"})
				bad := w.event()
				bad.TaskID = "not an id"
				w.publish(b, bad)
				after := w.event()
				w.publish(b, after)
				w.wantAll(w.kept(b), []events.Event{before, after}, "the events beside those that are none")
				if c, ok := capability.As[events.DropCounter](b); !ok {
					w.Errorf("%T counts no dropped events", b)
				} else if c.Dropped() != 2 {
					w.Errorf("Dropped is %d, want the 2 that are no events", c.Dropped())
				}
			},
		},
		{
			Area: "retain", Name: "a closed stream",
			Explain: "Close ends the stream and makes a waiting Receive return ErrClosed. Further calls do nothing, and other streams continue. They also continue when the ctx of a Receive ends.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				s, other := w.kept(b), w.kept(b)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(ctx); ended <- err }()
				cancel()
				w.WantIs(suite.Ends(w.World, ended, "Receive after its context was cancelled"), context.Canceled, "Receive")
				w.wantAll(s, w.send(b, 3), "after a Receive that ended")
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.closeSub(s)
				w.WantIs(suite.Ends(w.World, ended, "a waiting Receive after Close"), events.ErrClosed, "Receive")
				w.closeSub(s)
				ctx, cancel = w.Ctx()
				defer cancel()
				_, err := s.Receive(ctx)
				w.WantIs(err, events.ErrClosed, "Receive of a closed stream")
				w.upTo(other, w.send(b, 3)[2].TaskID)
			},
		},
		{
			Area: "retain", Name: "a closed bus",
			Explain: "Replay returns ErrClosed after Close, and Close ends all streams, even one without a reader.",
			Needs:   needs,
			Run: func(w *world) {
				b := w.retain(long())
				s, unread := w.kept(b), w.kept(b)
				w.upTo(s, w.send(b, 300)[299].TaskID)
				ended := make(chan error, 1)
				go func() { _, err := s.Receive(context.Background()); ended <- err }()
				w.Close(b)
				w.WantIs(suite.Ends(w.World, ended, "Receive after the bus was closed"), events.ErrClosed, "Receive")
				ctx, cancel := w.Ctx()
				defer cancel()
				_, err := unread.Receive(ctx)
				w.WantIs(err, events.ErrClosed, "Receive of a stream that nobody read")
				w.closeSub(unread)
				_, err = suite.Offer[events.Retainer](w, b).Replay(ctx, events.Filter{}, time.Time{})
				w.WantIs(err, events.ErrClosed, "Replay")
			},
		},
		{
			Area: "retain", Name: "a bus that keeps nothing",
			Explain: "Replay returns ErrNotRetained on a bus that keeps no events: an empty stream would look like an idle system.",
			Run: func(w *world) {
				buses := []events.EventBus{w.Open()}
				if w.h.Retain != nil {
					buses = append(buses, w.Own(w.h.Retain(w.TB, events.Retention{})))
				}
				ctx, cancel := w.Ctx()
				defer cancel()
				for _, b := range buses {
					if r, ok := capability.As[events.Retainer](b); ok {
						_, err := r.Replay(ctx, events.Filter{}, time.Time{})
						w.WantIs(err, events.ErrNotRetained, "Replay")
					}
				}
			},
		},
	}
}

// replayWhilePublishing opens six streams of kept events while four buses publish. It expects that
// each stream receives every event once, in the order of its publisher, and that all streams have
// the same order.
func replayWhilePublishing(w *world) {
	const publishers, streams = 4, 6
	each := w.buffer / (2 * publishers) // few enough that none is dropped
	fails := make(chan error, publishers)
	started := make(chan struct{}, publishers)
	for p := range publishers {
		b, node := w.retain(long()), string(rune('a'+p))
		es := make([]events.Event, each)
		for i := range es {
			es[i] = w.event()
			es[i].NodeID, es[i].PID = node, i
		}
		go func() {
			for i, e := range es {
				if err := b.Publish(context.Background(), e); err != nil {
					fails <- err
					return
				}
				if i == each/4 {
					started <- struct{}{}
				}
				if i%max(each/20, 1) == 0 {
					w.pass(time.Millisecond) // so that publishing continues while the streams are opened
				}
			}
			fails <- nil
		}()
	}
	suite.Ends(w.World, started, "the first events of a publisher")
	b := w.retain(long())
	subs := make([]events.Subscription, streams)
	begin := make([]events.Event, streams)
	for i := range subs {
		subs[i] = w.kept(b)
		begin[i] = w.receive(subs[i]) // so that the next stream is opened later
	}
	for range publishers {
		w.Must(suite.Ends(w.World, fails, "a publisher"), "Publish")
	}
	var first []task.ID
	for i, s := range subs {
		next := map[string]int{}
		var order []task.ID
		for n := range publishers * each {
			e := begin[i]
			if n > 0 {
				e = w.receive(s)
			}
			if e.PID != next[e.NodeID] {
				w.Fatalf("stream %d: event %d of node %s comes where its event %d should", i, e.PID, e.NodeID, next[e.NodeID])
			}
			next[e.NodeID]++
			order = append(order, e.TaskID)
		}
		if first == nil {
			first = order
		} else if diff := cmp.Diff(first, order); diff != "" {
			w.Errorf("streams 0 and %d differ in their order (-0 +%d):\n%.2000s", i, i, diff)
		}
	}
	w.nothingAll(subs, "after each event came once")
}
