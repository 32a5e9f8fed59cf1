package history_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":   "",
		"  ": "",
		"state:failed name:mail.* queue:orders header.tenant=42 error~timeout since:1h root:ID": "state:failed name:mail.* queue:orders header.tenant:42 error~timeout since:1h0m0s root:ID",
		`-name:a,"b c",d* error~"say \"no\" \\"`:                                                `-name:a,"b c",d* error~"say \"no\" \\"`,
		`name:"a"`:                                                                              "name:a",
		`name:"a*"`:                                                                             `name:"a*"`,
		`name:"a b"*`:                                                                           `name:"a b"*`,
		`name:""`:                                                                               `name:""`,
		"name:*":                                                                                "name:*",
		"wait>1.5s run<500ms attempts>2":                                                        "wait>1.5s run<500ms attempts>2",
		"attempts=3":                                                                            "attempts:3",
		"since:7d before:09:30":                                                                 "since:168h0m0s before:09:30",
		"since:2026-03-04T10:00:00+01:00":                                                       "since:2026-03-04T10:00:00+01:00",
		"state:dead,failed\tid:a\nnode:ü.1":                                                     "state:dead,failed id:a node:ü.1",
	} {
		q, err := history.Parse(text)
		if err != nil || q.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, q, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"failed":                               `query: at 1: "failed", want a field: id, state`,
		"state:failed colour:x":                `query: at 14: "colour:x", want a field`,
		"state":                                "query: at 6: the query ends, want one of : = after state",
		"state~x":                              `query: at 6: "~x", want one of : = after state`,
		"error:x":                              `query: at 6: ":x", want one of ~ after error`,
		"wait:1s":                              `query: at 5: ":1s", want one of > < after wait`,
		"state:faild":                          `query: at 7: "faild", want a state: pending`,
		"state:failed,":                        "query: at 14: the query ends, want a value",
		"state:fail*":                          `query: at 7: "fail*", want a state`,
		"name: x":                              `query: at 6: " ", want a value`,
		"header:x":                             `query: at 7: ":x", want header.KEY`,
		"header.:x":                            `query: at 8: ":x", want the name of a header`,
		`name:"x`:                              `query: at 6: "\"x", want a closing quote`,
		`name:"x\n"`:                           `query: at 9: "n\"", want \" or \\`,
		`name:"x"y`:                            `query: at 9: "y", want a blank`,
		"name:a*b":                             `query: at 8: "b", want a blank`,
		"wait>1":                               `query: at 6: "1", want a duration`,
		"wait>1s,2s":                           `query: at 8: ",2s", want one value only`,
		"wait>-1s":                             `query: at 6: "-1s", want a duration`,
		"attempts>x":                           `query: at 10: "x", want a number`,
		"since:yesterday":                      `query: at 7: "yesterday", want a time: 2h (ago)`,
		"since:25:00":                          `query: at 7: "25:00", want a time`,
		"since:-1h":                            `query: at 7: "-1h", want a time`,
		"root:a,é":                             `query: at 8: "é", want the id of a task`,
		"error~a,b":                            `query: at 8: ",b", want one value only`,
		`error~""`:                             `query: at 7: "\"\"", want a text`,
		"name:\xff":                            `query: at 6: "\xff", want a value`,
		"- state:failed":                       `query: at 2: " ", want a field`,
		strings.Repeat("a", 5000):              "query: at 4097",
		strings.Repeat("id:a ", 33):            "want at most 32 terms",
		"id:" + strings.Repeat("a,", 64) + "a": "want at most 64 values",
	} {
		_, err := history.Parse(text)
		if qe, ok := errors.AsType[*history.QueryError](err); !ok || !errors.Is(err, history.ErrQuery) || !strings.Contains(err.Error(), want) || qe.Pos > len(text) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "state:failed name:mail.* header.tenant=42 error~timeout since:1h", `-name:a,"b \" c"* wait>1s attempts:3 before:2026-03-04T10:00:00Z`, "since:23:59",
		`name:"` + "\xff", "name:é,*", "since:1e9h", "header.a.b:c",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := history.Parse(text)
		if err != nil {
			if qe, ok := errors.AsType[*history.QueryError](err); !ok || qe.Pos < 0 || qe.Pos > len(text) || qe.Want == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := history.Parse(q.String())
		if len(q.String()) > history.MaxQuery { // escapes make it longer
			return
		}
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, q, err)
		}
		if diff := cmp.Diff(q, again); diff != "" {
			t.Fatalf("%q is written as %q (-first +second):\n%s", text, q, diff)
		}
		q.At(time.Now()).Match(&history.Record{ID: "a"})
	})
}

func TestTimesOfQueries(t *testing.T) {
	zone := time.FixedZone("east", 2*3600)
	now := time.Date(2026, 3, 4, 1, 30, 0, 123456789, zone)
	q, err := history.Parse("since:1h -before:00:15 since:2026-03-03T00:00:00Z before:01:00")
	if err != nil {
		t.Fatal(err)
	}
	got := q.At(now)
	if want := "since:2026-03-04T00:30:00.123+02:00 -before:2026-03-04T00:15:00+02:00 since:2026-03-03T00:00:00Z before:2026-03-04T01:00:00+02:00"; got.String() != want {
		t.Errorf("%s, want %s", got, want)
	}
	if again := got.At(now.Add(time.Hour)); again.String() != got.String() {
		t.Errorf("absolute times changed: %s", again)
	}
	since, before := got.Span()
	if !since.Equal(now.Add(-time.Hour).Truncate(time.Millisecond)) || !before.Equal(time.Date(2026, 3, 4, 1, 0, 0, 0, zone)) {
		t.Errorf("%v to %v", since, before)
	}
}

// TestMatch tests Match itself, because the suite of stores compares them with it.
func TestMatch(t *testing.T) {
	r := history.Record{
		ID: "a", Name: "mail.send", State: history.Failed, DeadLetter: true, Root: "r", Error: "Time is OUT", Class: "Timeout", Wait: -1, Run: time.Second, Attempts: 2,
		Headers: map[string]string{"tenant": ""}, Changed: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC),
	}
	for text, want := range map[string]bool{
		"state:failed": true, "state:dead": true, "state:succeeded,dead": true, "-state:failed": false, "name:mail": false, "name:mail*": true, "name:x,mail.send": true,
		"root:a": false, "root:r": true, `root:""`: false, "error~is out": true, "error~Ö": false, "wait>0s": false, "wait<1h": false, "-wait<1h": true,
		"run>1s": false, "run<1001ms": true, "attempts:2": true, `header.tenant:""`: true, "header.tenant:*": true, "-header.x:*": true, "header.x:*": false,
		"since:2026-03-04T00:00:00Z": true, "before:2026-03-04T00:00:00Z": false, "state:failed name:x": false, `queue:""`: true,
	} {
		text = strings.Replace(text, "is out", `"is out"`, 1)
		q, err := history.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Match(&r); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	r.State, r.DeadLetter, r.Root = history.Succeeded, false, ""
	for _, text := range []string{"state:succeeded root:a", "-state:dead"} {
		if q, _ := history.Parse(text); !q.Match(&r) {
			t.Errorf("%s does not match", text)
		}
	}
}

func at(seconds int) time.Time { return time.Date(2026, 3, 4, 10, 0, seconds, 0, time.UTC) }

func fact(t testing.TB, e events.Event, i events.TaskInfo) *history.Facts {
	t.Helper()
	if e.TaskID == "" {
		e.TaskID = "a"
	}
	e.Fields = i.Fields(e.Fields)
	if err := events.Normalize(&e); err != nil {
		t.Fatal(err)
	}
	f := history.NewFacts(&e)
	if f == nil {
		t.Fatalf("no facts of a %s", e.Type)
	}
	return f
}

// TestStates tells a story in its order and checks the record after each event.
func TestStates(t *testing.T) {
	var f history.Facts
	f.ID = "a"
	for n, step := range []struct {
		e    events.Event
		i    events.TaskInfo
		want func(r *history.Record) bool
	}{
		{
			events.Event{Type: events.TaskSent, Name: "n", Queue: "q", NodeID: "web"},
			events.TaskInfo{Due: at(10), Root: "r", Parent: "p", Group: "g"},
			func(r *history.Record) bool {
				return r.State == history.Pending && r.Due == at(10) && r.Node == "web" && r.Root == "r" && r.Group == "g"
			},
		},
		{
			events.Event{Type: events.TaskReceived, Name: "n", Queue: "q", NodeID: "w1"},
			events.TaskInfo{},
			func(r *history.Record) bool { return r.State == history.Received && r.Node == "w1" && r.Attempts == 0 },
		},
		{
			events.Event{Type: events.TaskStarted, NodeID: "w1"},
			events.TaskInfo{},
			func(r *history.Record) bool { return r.State == history.Started && r.Attempts == 1 && r.Wait == 0 },
		},
		{
			events.Event{Type: "task-progress", Fields: map[string]any{"done": 3, "total": 10, "note": "x"}},
			events.TaskInfo{},
			func(r *history.Record) bool {
				return r.State == history.Started && r.Progress.Done == 3 && r.Progress.Total == 10 && r.Progress.Note == "x"
			},
		},
		// a snooze: received again in the same attempt
		{
			events.Event{Type: events.TaskReceived, Name: "n", Queue: "q"},
			events.TaskInfo{Generation: 1},
			func(r *history.Record) bool { return r.State == history.Received },
		},
		{events.Event{Type: events.TaskStarted}, events.TaskInfo{Generation: 1}, func(r *history.Record) bool { return r.State == history.Started }},
		{events.Event{Type: events.TaskAwaiting}, events.TaskInfo{Generation: 1}, func(r *history.Record) bool { return r.State == history.Awaiting }},
		{
			events.Event{Type: events.TaskFailed, Retry: true, Exception: "boom"},
			events.TaskInfo{Generation: 1, Class: "Boom"},
			func(r *history.Record) bool {
				return r.State == history.Retrying && r.Error == "boom" && r.Class == "Boom"
			},
		},
		{
			events.Event{Type: events.TaskSent, Retries: 1, Name: "n", Queue: "q2"},
			events.TaskInfo{},
			func(r *history.Record) bool {
				return r.State == history.Retrying && r.Queue == "q2" && r.Error == "boom"
			},
		},
		{
			events.Event{Type: events.TaskFailed, Exception: "bang", Stack: "main.go"},
			events.TaskInfo{Generation: 2, Attempt: 2, DeadLetter: true},
			func(r *history.Record) bool {
				return r.State == history.Failed && r.DeadLetter && r.Error == "bang" && r.Stack == "main.go" && r.Attempts == 2
			},
		},
		{
			events.Event{Type: events.TaskRevoked, Fields: map[string]any{"expired": true}},
			events.TaskInfo{Life: 1},
			func(r *history.Record) bool {
				return r.State == history.Expired && !r.DeadLetter && r.Error == "" && r.Life == 1
			},
		},
		{events.Event{Type: events.TaskRevoked}, events.TaskInfo{Life: 2}, func(r *history.Record) bool { return r.State == history.Revoked }},
		{
			events.Event{Type: events.TaskSucceeded, Result: "1", Runtime: time.Second},
			events.TaskInfo{Life: 3},
			func(r *history.Record) bool {
				return r.State == history.Succeeded && r.Result == "1" && r.Run == time.Second && r.Ended == r.Changed
			},
		},
	} {
		step.e.Time = at(n)
		f.Merge(fact(t, step.e, step.i))
		if r := f.Record(); !step.want(&r) || r.Changed != at(n) {
			t.Errorf("step %d, %s: %+v", n, step.e.Type, r)
		}
	}
	for _, e := range []events.Event{{Type: events.TaskSent}, {Type: events.WorkerOnline, TaskID: "a"}, {Type: events.TaskRevoke, TaskID: "a"}} {
		if history.NewFacts(&e) != nil {
			t.Errorf("facts of %+v", e)
		}
	}
}

// TestBounds merges more entries than a record has.
func TestBounds(t *testing.T) {
	f := history.Facts{ID: "a"}
	for n := range 500 {
		f.Merge(fact(t, events.Event{Type: events.TaskStarted, Time: at(n)}, events.TaskInfo{Attempt: n + 1}))
		f.Merge(fact(t, events.Event{Type: events.TaskFailed, Time: at(n), Exception: strings.Repeat("x", 5000), Retry: true}, events.TaskInfo{Attempt: n + 1}))
	}
	r := f.Record()
	data, err := json.Marshal(&f)
	if err != nil || len(r.Timeline) != 80 || r.Attempts != 500 || len(r.Error) != events.MaxText || len(data) > 60_000 {
		t.Errorf("%d entries, %d attempts, an error of %d bytes, stored %d bytes, %v", len(r.Timeline), r.Attempts, len(r.Error), len(data), err)
	}
}

// TestMergeInAnyOrder merges the same events in two orders and groupings, also more than a timeline
// keeps, and through the stored form.
func TestMergeInAnyOrder(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) events.Event {
		i := events.TaskInfo{Life: rapid.IntRange(0, 2).Draw(t, "life"), Attempt: rapid.IntRange(1, 60).Draw(t, "attempt"), Class: rapid.SampledFrom([]string{"", "A"}).Draw(t, "class")}
		return events.Event{
			Type: rapid.SampledFrom(history.EventTypes()).Draw(t, "type"), TaskID: "a", Time: at(rapid.IntRange(0, 50).Draw(t, "time")),
			Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), Retry: rapid.Bool().Draw(t, "retry"), Exception: rapid.SampledFrom([]string{"e", "f\x00"}).Draw(t, "error"),
			Fields: i.Fields(nil),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(one, 1, 150).Draw(t, "events")
		var fs []*history.Facts
		for i := range all {
			if err := events.Normalize(&all[i]); err != nil {
				t.Fatal(err)
			}
			fs = append(fs, history.NewFacts(&all[i]))
		}
		a := history.Facts{ID: "a"}
		for _, f := range fs {
			a.Merge(f)
		}
		parts := []*history.Facts{{ID: "a"}, {ID: "a"}, {ID: "a"}}
		for _, f := range rapid.Permutation(append(fs, fs[len(fs)/2:]...)).Draw(t, "order") {
			parts[rapid.IntRange(0, 2).Draw(t, "part")].Merge(f)
		}
		b := history.Facts{ID: "a"}
		for _, p := range parts {
			b.Merge(stored(t, p))
		}
		if diff := cmp.Diff(a.Record(), b.Record()); diff != "" {
			t.Fatalf("-one by one +in parts:\n%s", diff)
		}
		if b.Merge(&a) {
			t.Fatal("merging again changes it")
		}
		if n := len(b.Buckets(&a)); n != 0 {
			t.Fatalf("%d entries would count twice", n)
		}
	})
}

func stored(t *rapid.T, f *history.Facts) *history.Facts {
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var read history.Facts
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return &read
}

// TestStoredForm holds the form that databases of released versions have.
func TestStoredForm(t *testing.T) {
	f := fact(t, events.Event{Type: events.TaskSent, Time: at(0), NodeID: "web", Name: "n", Queue: "q", Args: "[1]"}, events.TaskInfo{Due: at(5), Headers: map[string]string{"k": "v"}})
	f.Merge(fact(t, events.Event{Type: events.TaskFailed, Time: at(9), Exception: "e", Stack: "s", Runtime: 1500}, events.TaskInfo{Life: 1, Generation: 2, Attempt: 3, Class: "c", DeadLetter: true}))
	f.Merge(fact(t, events.Event{Type: "task-progress", Time: at(8), Fields: map[string]any{"done": 1, "total": 2, "note": "m"}}, events.TaskInfo{}))
	want := `{"i":"a","e":[{"k":0,"t":1772618400000,"n":"web","q":"q","d":1772618405000},{"k":7,"t":1772618409000,"l":1,"a":2,"g":2,"r":1500,"e":"e","c":"c","x":true}],` +
		`"f":[{"k":0,"a":{"k":0,"t":1772618400000,"n":"web","q":"q","d":1772618405000},"t":["n","q","","","","k","v"]},` +
		`{"k":1,"a":{"k":0,"t":1772618400000,"n":"web","q":"q","d":1772618405000},"t":["[1]"]},` +
		`{"k":3,"a":{"k":7,"t":1772618409000,"l":1,"a":2,"g":2,"r":1500,"e":"e","c":"c","x":true},"t":["e","c","s"]},` +
		`{"k":4,"a":{"k":3,"t":1772618408000,"p":1,"o":2,"m":"m"}}]}`
	data, err := json.Marshal(f)
	if diff := cmp.Diff(want, string(data)); diff != "" || err != nil {
		t.Errorf("%v; databases of released versions have another form (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "[]", `{"i":""}`, `{"i":"a","e":[{"k":99}]}`, `{"i":"a","e":[{"k":1,"t":5},{"k":0,"t":5}]}`, `{"i":"a","f":[{"k":0,"a":{"k":-1}}]}`} {
		var f history.Facts
		if err := f.UnmarshalJSON([]byte(text)); !errors.Is(err, history.ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzFacts reads stored facts, which other programs may have changed.
func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"i":"a","e":[{"k":0,"t":1},{"k":1,"t":2}],"f":[{"k":0,"a":{"k":0},"t":["n","q"]},{"k":3,"a":{"k":7},"t":[]},{"k":77,"a":{"k":1}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var facts history.Facts
		if facts.UnmarshalJSON(data) != nil {
			return
		}
		r := facts.Record()
		if r.ID == "" || r.State == "" && len(r.Timeline) > 0 {
			t.Fatalf("%+v", r)
		}
		facts.Buckets(nil)
	})
}

func TestBatchIsChecked(t *testing.T) {
	for _, b := range []history.Batch{{Facts: []*history.Facts{nil}}, {Facts: []*history.Facts{{}}}} {
		if err := b.Check(); !errors.Is(err, history.ErrMalformed) {
			t.Errorf("%v", err)
		}
	}
	b := history.Batch{}
	for n := range 5 {
		b.Facts = append(b.Facts, fact(t, events.Event{Type: events.TaskStarted, TaskID: task.ID(fmt.Sprint("t", n%2)), Time: at(n)}, events.TaskInfo{Attempt: n + 1}))
	}
	merged := b.Merged()
	if len(merged) != 2 || len(merged[0].Record().Timeline) != 3 || len(b.Facts[0].Record().Timeline) != 1 {
		t.Errorf("%d facts", len(merged))
	}
	if !slices.IsSortedFunc(merged, func(a, b *history.Facts) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		t.Error("not in the order of the batch")
	}
}
