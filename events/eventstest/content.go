package eventstest

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
)

// full returns an event with every field set, also fields of other types.
func full(typ string) events.Event {
	return events.Event{
		Type: typ, TaskID: `a.b/c*>"\{}`, NodeID: "host-1-ab", Time: time.Date(2026, 11, 20, 17, 4, 5, 678_901_234, time.FixedZone("", 3600)),
		Name: "email.send", Args: "[\"ä😀\x00\",1]", Retries: 2, Queue: "mail", Exchange: "swarmiji", RoutingKey: "mail.3",
		PID: 4711, Runtime: 1500*time.Microsecond + 7, Pool: 200*time.Hour + 1, Result: `"ok"`,
		Exception: "no \"such\" host\r\n", Stack: "main.go:1\n\tmain.go:2", Retry: true,
		Worker: &events.Worker{
			Hostname: "host\n", Role: events.RoleConsumer, Freq: 2*time.Second + 1, Ident: "swarmiji", Version: "v1", System: "linux/amd64",
			Active: 3, Processed: 1 << 40, Load: 0.25, Mem: -1, Observer: "host-2-cd", Queues: []string{"mail", "é\n"},
		},
		Fields: map[string]any{
			"tenant": "ä", "n": 7, "f": 0.25, "yes": true, "none": nil, "list": []any{1, "x", []any{}}, "map": map[string]any{"a": 1},
			"name": "not this one", "type": "nor this", "load": 7, "mem": 7, "hostname": "only of events about nodes",
		},
	}
}

// contentCases returns the cases of the content of events.
func contentCases() []testCase {
	types := []string{
		events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded, events.TaskFailed, events.TaskRevoked,
		events.WorkerOnline, events.WorkerHeartbeat, events.WorkerOffline,
	}
	return []testCase{
		{
			Area: "content", Name: "the fields of each type",
			Explain: "A listener receives the fields of the event's type and further Fields, and no others. Time is in UTC and whole milliseconds, durations are exact, and further fields have the types of JSON and never replace a standard field.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				for _, typ := range types {
					w.publish(b, full(typ))
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
			Area: "content", Name: "empty fields",
			Explain: "An event that has only a type arrives unchanged.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				for _, typ := range types {
					want := events.Event{Type: typ}
					w.publish(b, want)
					if diff := cmp.Diff(want, w.receive(s)); diff != "" {
						w.Errorf("%s (-want +received):\n%s", typ, diff)
					}
				}
			},
		},
		{
			Area: "content", Name: "long texts are cut",
			Explain: "Texts above the limits are cut between characters: an event that is too large for the server would be lost, possibly with others of its message.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				long := strings.Repeat("é\xff", 1<<16)
				for _, typ := range types {
					e := full(typ)
					e.Args, e.Result, e.Exception, e.Stack = long, "x"+long, long, "x"+long
					e.Name, e.NodeID, e.Queue, e.Exchange, e.RoutingKey = long, long, long, long, long
					e.Fields = map[string]any{"long": long}
					want := e
					err := events.Normalize(&want)
					w.Must(err, "Normalize")
					w.publish(b, e)
					if diff := cmp.Diff(want, w.receive(s)); diff != "" {
						w.Errorf("%s (-want +received):\n%s", typ, diff)
					}
				}
			},
		},
		{
			Area: "content", Name: "what is no event",
			Explain: "An event without a type or with an invalid task id is dropped and counted. Publish returns nil, and other events arrive.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				before := w.event()
				w.publish(b, before)
				w.publish(b, events.Event{TaskID: "no-type"})
				bad := w.event()
				bad.TaskID = "not an id"
				w.publish(b, bad)
				after := w.event()
				w.publish(b, after)
				w.wantAll(s, []events.Event{before, after}, "the events beside those that are none")
				if c, ok := capability.As[events.DropCounter](b); !ok {
					w.Errorf("%T counts no dropped events", b)
				} else if c.Dropped() != 2 {
					w.Errorf("Dropped is %d, want the 2 that are no events", c.Dropped())
				}
			},
		},
		{
			Area: "content", Name: "the publisher's map",
			Explain: "Publish copies the event and returns at once: later changes of the publisher's map do not change the event.",
			Run: func(w *world) {
				s, b := w.all(w.Open()), w.Open()
				e := w.event()
				e.Fields = map[string]any{"k": "before"}
				w.publish(b, e)
				e.Fields["k"] = "after"
				if got := w.receive(s); got.Fields["k"] != "before" {
					w.Errorf("the event changed with its publisher's map: %v", got.Fields)
				}
			},
		},
	}
}
