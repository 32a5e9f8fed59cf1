package control_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/events"
)

// at is the time of the events of these tests.
var at = time.Date(2026, 11, 20, 14, 54, 2, 571_000_000, time.UTC)

// wantJSON compares a message with JSON, without the fields that differ between runs.
func wantJSON(t *testing.T, got map[string]any, want string) {
	t.Helper()
	for _, name := range []string{"pid", "clock", "utcoffset", "loadavg"} {
		if got[name] == nil && name != "pid" {
			t.Errorf("%v has no %s", got["type"], name)
		}
		delete(got, name)
	}
	var w map[string]any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, got); diff != "" {
		t.Errorf("%v (-want +sent):\n%s", got["type"], diff)
	}
}

// TestSentEvents shows the messages that Celery's monitors receive.
func TestSentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newMemory()
		b, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []events.Event{
			{
				Type: events.TaskReceived, TaskID: "t1", NodeID: "go@vm", Time: at, Name: "go.add", Args: "[1,2]", Retries: 1, Queue: "q",
				Fields: map[string]any{"root": "t0", "parent": "p1", "attempt": 2, "group": "g"},
			},
			{Type: events.TaskStarted, TaskID: "t1", NodeID: "go@vm", Time: at, PID: 5},
			{Type: events.TaskSucceeded, TaskID: "t1", NodeID: "go@vm", Time: at, Result: "3", Runtime: 1500 * time.Millisecond, Pool: 2 * time.Second},
			{Type: events.TaskFailed, TaskID: "t2", NodeID: "go@vm", Time: at, Exception: "boom", Retry: true},
			{
				Type: events.WorkerHeartbeat, NodeID: "go@vm", Time: at,
				Worker: &events.Worker{Hostname: "vm", Role: "consumer", Freq: 2 * time.Second, Ident: "swarmiji", Active: 1, Processed: 7, Load: 0.5, Mem: -1},
			},
			{Type: events.WorkerOffline, NodeID: "py@vm", Time: at, Worker: &events.Worker{Observer: "go@vm", Load: -1, Mem: -1}},
			{Type: events.TaskRevoke, NodeID: "go@vm", Time: at, Fields: map[string]any{"ids": []any{"t3"}}},
			{Type: events.TaskRevoked, TaskID: "t3", NodeID: "go@vm", Time: at, Fields: map[string]any{"expired": true}},
		} {
			if err := b.PublishNow(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent := tr.taken(control.Events)
		keys := make([]string, len(sent))
		var es []map[string]any
		for i, m := range sent {
			keys[i] = m.Key
			var list []map[string]any
			if m.Key != "task.multi" {
				list = make([]map[string]any, 1)
				err = json.Unmarshal(m.Body, &list[0])
			} else {
				err = json.Unmarshal(m.Body, &list)
			}
			if err != nil {
				t.Fatal(err)
			}
			es = append(es, list...)
		}
		wantKeys := []string{"task.multi", "worker.heartbeat", "swarmiji.worker.offline", "swarmiji.task.revoke", "task.multi"}
		if diff := cmp.Diff(wantKeys, keys); diff != "" || len(es) != 8 {
			t.Fatalf("%d events, routing keys (-want +sent):\n%s", len(es), diff)
		}
		const stamped = `"hostname": "go@vm", "timestamp": 1795186442.571, `
		for i, want := range map[int]string{
			0: `"type": "task-received", "uuid": "t1", "name": "go.add", "args": "[1,2]", "kwargs": "{}", "retries": 1, "queue": "q",
				"root_id": "t0", "parent_id": "p1", "eta": null, "expires": null, "group": "g"}`,
			1: `"type": "task-started", "uuid": "t1"}`,
			2: `"type": "task-succeeded", "uuid": "t1", "result": "3", "runtime": 1.5, "pool": 2}`,
			3: `"type": "task-retried", "uuid": "t2", "exception": "boom", "traceback": "", "runtime": 0, "pool": 0}`,
			4: `"type": "worker-heartbeat", "host": "vm", "role": "consumer", "freq": 2, "sw_ident": "swarmiji", "sw_ver": "", "sw_sys": "",
				"active": 1, "processed": 7, "reserved": 0, "stuck": 0, "load": 0.5, "mem": -1}`,
			7: `"type": "task-revoked", "uuid": "t3", "expired": true, "terminated": false, "signum": null}`,
		} {
			if i != 4 {
				delete(es[i], "loadavg")
				es[i]["loadavg"] = true
			}
			wantJSON(t, es[i], "{"+stamped+want)
		}
	})
}

// python are events as Celery 5.2.6 sends them, shortened, and what listeners receive.
var python = []struct {
	body string
	want []events.Event
}{
	{
		`[{"hostname": "py@vm", "utcoffset": 0, "pid": 7, "clock": 12, "uuid": "t1", "name": "py.add", "args": "(1, 2)", "kwargs": "{'x': 1}",
			"root_id": "t1", "parent_id": null, "retries": 0, "eta": null, "expires": null, "timestamp": 1795186442.5714, "type": "task-received"},
		  {"hostname": "py@vm", "utcoffset": 0, "pid": 7, "clock": 13, "uuid": "t1", "timestamp": 1795186442.571, "type": "task-started"}]`,
		[]events.Event{
			{Type: events.TaskReceived, TaskID: "t1", NodeID: "py@vm", Time: at, Name: "py.add", Args: "(1, 2) {'x': 1}"},
			{Type: events.TaskStarted, TaskID: "t1", NodeID: "py@vm", Time: at, PID: 7},
		},
	},
	{
		`[{"hostname": "py@vm", "pid": 7, "clock": 14, "uuid": "t1", "result": "'ok'", "runtime": 0.25, "timestamp": 1795186442.571, "type": "task-succeeded"}]`,
		[]events.Event{{Type: events.TaskSucceeded, TaskID: "t1", NodeID: "py@vm", Time: at, Result: "'ok'", Runtime: 250 * time.Millisecond, Pool: 250 * time.Millisecond}},
	},
	{
		`{"hostname": "py@vm", "clock": 15, "uuid": "t2", "exception": "ValueError('boom')", "traceback": "Traceback", "timestamp": 1795186442.571, "type": "task-retried"}`,
		[]events.Event{{Type: events.TaskFailed, TaskID: "t2", NodeID: "py@vm", Time: at, Exception: "ValueError('boom')", Stack: "Traceback", Retry: true}},
	},
	{
		`{"hostname": "gen7@vm", "clock": 15, "uuid": "t3", "root_id": "r1", "parent_id": "p1", "name": "py.add", "args": "()", "kwargs": "{}", "retries": 2, "eta":
			"2026-11-20T14:54:02.571000+00:00", "expires": null, "queue": "q", "exchange": "", "routing_key": "q", "timestamp": 1795186442.571, "type": "task-sent"}`,
		[]events.Event{{
			Type: events.TaskSent, TaskID: "t3", NodeID: "gen7@vm", Time: at, Name: "py.add", Args: "()", Retries: 2, Queue: "q", RoutingKey: "q",
			Fields: map[string]any{"root": "r1", "parent": "p1", "attempt": 3.0, "due": 1795186442571.0},
		}},
	},
	{
		`{"hostname": "py@vm", "clock": 16, "uuid": "t4", "terminated": false, "signum": null, "expired": true, "timestamp": 1795186442.571, "type": "task-revoked"}`,
		[]events.Event{{Type: events.TaskRevoked, TaskID: "t4", NodeID: "py@vm", Time: at, Fields: map[string]any{"expired": true}}},
	},
	{
		`{"hostname": "py@vm", "utcoffset": 0, "pid": 7, "clock": 3, "freq": 2.0, "active": 1, "processed": 9, "loadavg": [1.0, 2.0, 3.0],
			"sw_ident": "py-celery", "sw_ver": "5.2.6", "sw_sys": "Linux", "timestamp": 1795186442.571, "type": "worker-heartbeat"}`,
		[]events.Event{{Type: events.WorkerHeartbeat, NodeID: "py@vm", Time: at, Worker: &events.Worker{
			Hostname: "vm", Role: events.RoleConsumer, Freq: 2 * time.Second, Ident: "py-celery", Version: "5.2.6", System: "Linux",
			Active: 1, Processed: 9, Load: -1, Mem: -1,
		}}},
	},
}

// TestPythonEvents shows what listeners receive of Python workers and producers.
func TestPythonEvents(t *testing.T) {
	if got := time.UnixMilli(1795186442571).UTC(); got != at {
		t.Fatalf("the stamp is %v", got)
	}
	for _, p := range python {
		for _, e := range deliver(t, p.body, 0) {
			if diff := cmp.Diff(p.want[0], e); diff != "" {
				t.Errorf("%s (-want +received):\n%s", e.Type, diff)
			}
			p.want = p.want[1:]
		}
		if len(p.want) != 0 {
			t.Errorf("not received: %+v", p.want)
		}
	}
}

// deliver returns the events that a listener receives of a message, which has this number of
// invalid ones.
func deliver(t testing.TB, body string, invalid uint64) (es []events.Event) {
	t.Helper()
	tr := newMemory()
	b, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close(t.Context()) }()
	s, err := b.Subscribe(t.Context(), events.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Publish(t.Context(), &control.Message{Exchange: control.Events, JSON: true, Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	c, ok := s.(events.DropCounter)
	if !ok || c.Dropped() != invalid {
		t.Errorf("%.60s: %d events are dropped, want %d", body, c.Dropped(), invalid)
	}
	// the events wait in the stream, and a last one ends the list
	last := `{"type": "last", "hostname": "end"}`
	if err := tr.Publish(t.Context(), &control.Message{Exchange: control.Events, JSON: true, Body: []byte(last)}); err != nil {
		t.Fatal(err)
	}
	for {
		e, err := s.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "last" {
			return es
		}
		es = append(es, e)
	}
}

// TestHostileEvents shows that an invalid event is dropped and counted, and the others arrive.
func TestHostileEvents(t *testing.T) {
	for _, body := range []string{
		``, `null`, `5`, `"x"`, `{}`, `[[]]`, `[null]`, `{"type": 5}`, `{"type": "task-sent"`, `{"type": "task-sent", "uuid": "not an id"}`,
		`{"type": "x", "swarmiji": {}}`, `{"type": "x", "swarmiji": "y"}`, `{"type": "x", "swarmiji": [{"type": "a"}, {"type": "b"}]}`,
	} {
		if es := deliver(t, body, 1); len(es) != 0 {
			t.Errorf("%s: received %+v", body, es)
		}
	}
	es := deliver(t, `[{"type": 5}, {"type": "task-started", "uuid": "t1", "hostname": 7, "timestamp": "x", "pid": -5, "clock": 1e300}]`, 1)
	if len(es) != 1 || es[0].TaskID != "t1" || es[0].PID != 0 {
		t.Errorf("received %+v, want the event with valid fields only", es)
	}
}

// FuzzEvents feeds messages to a listener.
func FuzzEvents(f *testing.F) {
	for _, p := range python {
		f.Add([]byte(p.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		tr := newMemory()
		b, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Subscribe(t.Context(), events.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		_ = tr.Publish(t.Context(), &control.Message{Exchange: control.Events, JSON: true, Body: body})
		_ = s.Close(t.Context())
		_ = b.Close(t.Context())
	})
}

// TestTaskEventsCanBeDisabled shows that disable_events stops the events of tasks, and neither
// those of nodes nor revocations.
func TestTaskEventsCanBeDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newMemory()
		b, err := control.NewBus(control.Config{Transport: tr, Host: "vm"})
		if err != nil {
			t.Fatal(err)
		}
		if !b.EnableTaskEvents(false) || b.EnableTaskEvents(false) {
			t.Error("EnableTaskEvents reports a wrong change")
		}
		for _, typ := range []string{events.TaskStarted, events.TaskRevoke, events.WorkerOnline} {
			if err := b.PublishNow(events.Event{Type: typ, TaskID: "t", NodeID: "n", Worker: &events.Worker{}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, m := range tr.taken(control.Events) {
			keys = append(keys, m.Key)
		}
		if diff := cmp.Diff([]string{"swarmiji.task.revoke", "worker.online"}, keys); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}
