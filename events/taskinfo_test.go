package events_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/task"
)

// TestTaskInfoOnTheWire holds the names of the facts about tasks.
func TestTaskInfoOnTheWire(t *testing.T) {
	e := full(events.TaskFailed)
	i := events.TaskInfo{
		Parent: "p", Root: "r", Group: "g", Headers: map[string]string{"tenant": "42"}, Life: 1, Generation: 3, Attempt: 2,
		Due: time.UnixMilli(1_795_190_645_678).UTC(), Class: "swarmiji.TimeLimit", DeadLetter: true,
		Original: []byte("{\x00\xff"), OriginalType: "application/json",
	}
	e.Fields = i.Fields(map[string]any{"max_retries": 5})
	data, err := events.Encode([]events.Event{e})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/taskinfo.golden", string(data)+"\n")
	got, err := events.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(i, got[0].Info()); diff != "" {
		t.Errorf("-sent +received:\n%s", diff)
	}
}

// TestOriginalAtItsLimit shows that the longest original message arrives whole, and the facts
// behind it too.
func TestOriginalAtItsLimit(t *testing.T) {
	i := events.TaskInfo{Parent: "p", Root: "r", Attempt: 1, Original: bytes.Repeat([]byte{0xff}, events.MaxOriginal), OriginalType: "t", Headers: map[string]string{}}
	for n := range events.MaxHeaders {
		i.Headers[strings.Repeat("h", 100)+string(rune('a'+n))] = strings.Repeat("v", events.MaxHeaderValue)
	}
	e := events.Event{Type: events.TaskReceived, TaskID: "x", Time: time.UnixMilli(1), Fields: i.Fields(nil)}
	data, err := events.Encode([]events.Event{e})
	if err != nil {
		t.Fatal(err)
	}
	got, err := events.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(i, got[0].Info()); diff != "" {
		t.Errorf("-sent +received:\n%s", diff)
	}
	events.DropOriginal(got[0].Fields)
	if i := got[0].Info(); i.Original != nil || i.OriginalType != "" || i.Parent != "p" {
		t.Errorf("without its original: %+v", i)
	}
}

// TestPlainTaskHasNoInfo shows that a plain task in its first attempt costs no bytes and no memory.
func TestPlainTaskHasNoInfo(t *testing.T) {
	e := &task.Envelope{ID: "a", Root: "a", Name: "n", Headers: map[string]string{"secret": "x"}}
	r := &events.Report{}
	if m := r.Info(e).Fields(nil); m != nil {
		t.Errorf("%v", m)
	}
	if n := testing.AllocsPerRun(100, func() { r.Info(e).Fields(nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	r.Headers = []string{"tenant", "secret"}
	if i := r.Info(e); len(i.Headers) != 1 || i.Headers["secret"] != "x" {
		t.Errorf("%v", i.Headers)
	}
}

// TestTaskInfoOfForeignEvents reads any values.
func TestTaskInfoOfForeignEvents(t *testing.T) {
	names := []string{"parent", "root", "group", "headers", "life", "generation", "attempt", "due", "class", "dead_letter", "original", "original_type"}
	rapid.Check(t, func(t *rapid.T) {
		e := events.Event{Type: events.TaskSent, Fields: rapid.MapOf(rapid.SampledFrom(names), anyValue()).Draw(t, "fields")}
		if err := events.Normalize(&e); err != nil {
			t.Fatal(err)
		}
		i := e.Info()
		if len(i.Original) > events.MaxOriginal || (i.Original == nil) != (i.OriginalType == "") {
			t.Fatalf("%+v", i)
		}
		if i.Life < 0 || i.Generation < 0 || i.Attempt < 1 || i.Parent != "" && i.Parent.Check() != nil {
			t.Fatalf("%+v", i)
		}
	})
	e := events.Event{Fields: map[string]any{
		"parent": "no id", "life": 1e300, "generation": -1.0, "attempt": 0.5, "due": -5.0, "headers": map[string]any{"n": 1.0, "k": strings.Repeat("x", 9999)},
	}}
	want := events.TaskInfo{Attempt: 1, Headers: map[string]string{"k": strings.Repeat("x", events.MaxHeaderValue)}}
	if diff := cmp.Diff(want, e.Info()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
