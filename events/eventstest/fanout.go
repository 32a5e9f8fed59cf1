package eventstest

import (
	"context"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/suite"
)

// fanoutCases returns the cases of several listeners and filters.
func fanoutCases() []testCase {
	return []testCase{
		{
			// Promises: S7.
			Area: "fanout", Name: "every subscription gets its own copy",
			Explain: "Events reach every listener: each subscription in any process receives its own copy of each event.",
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				subs := []events.Subscription{w.all(listener), w.all(listener), w.all(w.Open()), w.all(publisher)}
				es := w.send(publisher, 250)
				for i, s := range subs {
					w.wantAll(s, es, "subscription %d", i)
				}
				w.nothingAll(subs, "after each event came once")
			},
		},
		{
			Area: "fanout", Name: "a copy is the listener's own",
			Explain: "A listener may change the event that it received, also its Fields, and no other listener sees the change.",
			Run: func(w *world) {
				b := w.Open()
				one, two := w.all(b), w.all(b)
				e := w.event()
				e.Fields = map[string]any{"k": "v", "deep": map[string]any{"list": []any{"x"}}}
				w.publish(b, e)
				got := w.receive(one)
				got.Fields["k"] = "changed"
				got.Fields["deep"].(map[string]any)["list"].([]any)[0] = "changed"
				other := w.receive(two)
				if other.Fields["k"] != "v" || other.Fields["deep"].(map[string]any)["list"].([]any)[0] != "x" {
					w.Errorf("the second listener sees what the first changed: %v", other.Fields)
				}
			},
		},
		{
			// Promises: S7.
			Area: "fanout", Name: "late listeners miss what was before",
			Explain: "A stream holds the events published from now on. It is open when Subscribe returns nil, so that it holds the very next event.",
			Run: func(w *world) {
				publisher := w.Open()
				first := w.all(w.Open())
				early := w.send(publisher, 3)
				// so that they are sent before the late listener subscribes
				w.wantAll(first, early, "the early listener")
				late := w.all(w.Open())
				next := w.send(publisher, 3)
				w.wantAll(late, next, "the late listener")
				w.wantAll(first, next, "the early listener")
			},
		},
		{
			Area: "fanout", Name: "several publishers",
			Explain: "Events of all processes arrive through one bus, and those of one publisher in the order of their Publish.",
			Run: func(w *world) {
				s := w.all(w.Open())
				const publishers = 4
				each := w.buffer / (2 * publishers) // few enough that none is dropped
				fails := make(chan error, publishers)
				sent := map[string][]events.Event{}
				for p := range publishers {
					b, node := w.Open(), string(rune('a'+p))
					es := make([]events.Event, each)
					for i := range es {
						es[i] = w.event()
						es[i].NodeID = node
					}
					sent[node] = es
					go func() {
						for _, e := range es {
							if err := b.Publish(context.Background(), e); err != nil {
								fails <- err
								return
							}
						}
						fails <- nil
					}()
				}
				for range publishers {
					w.Must(suite.Ends(w.World, fails, "a publisher"), "Publish")
				}
				for range publishers * each {
					got := w.receive(s)
					left := sent[got.NodeID]
					if len(left) == 0 || left[0].TaskID != got.TaskID {
						w.Fatalf("node %s's events are out of order: %s", got.NodeID, show(got))
					}
					sent[got.NodeID] = left[1:]
				}
			},
		},
		{
			Area: "fanout", Name: "filter by type",
			Explain: "A subscription receives exactly the events that match its filter.",
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				s := w.subscribe(listener, events.Filter{Types: []string{events.TaskFailed, "worker-online"}})
				var want []events.Event
				for range 20 {
					for _, typ := range []string{events.TaskStarted, events.TaskFailed, "worker-online", "worker-offline"} {
						e := w.event()
						e.Type = typ
						w.publish(publisher, e)
						if typ == events.TaskFailed || typ == "worker-online" {
							want = append(want, e)
						}
					}
				}
				w.wantAll(s, want, "a filter of two types")
				w.nothing(s, "after all events of the two types")
			},
		},
		{
			Area: "fanout", Name: "filter by task",
			Explain: "A subscription for one task receives exactly the events of that task.",
			Run: func(w *world) {
				publisher, listener := w.Open(), w.Open()
				mine := w.event()
				s := w.subscribe(listener, events.Filter{TaskID: mine.TaskID, Types: []string{mine.Type}})
				w.send(publisher, 5)
				none, otherType := w.event(), mine
				none.TaskID = ""
				otherType.Type = events.TaskRevoked
				w.publish(publisher, none)
				w.publish(publisher, otherType)
				w.publish(publisher, mine)
				w.wantAll(s, []events.Event{mine}, "a filter of one task and type")
				w.nothing(s, "after the task's only event of the type")
			},
		},
		{
			Area: "fanout", Name: "nobody listens",
			Explain: "A bus without listeners accepts events.",
			Run: func(w *world) {
				b := w.Open()
				w.send(b, 1000)
				s := w.all(b)
				w.flows(b, s, "a subscription after events that nobody heard")
			},
		},
	}
}
