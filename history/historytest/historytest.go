// Package historytest is the conformance suite for implementations of [history.Store].
package historytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

// patience limits a case.
const patience = 60 * time.Second

// Open makes a fresh history. The returned function opens a store of that history, and closes it
// with t.Cleanup.
type Open func(t *testing.T) func(t *testing.T) history.Store

// Run runs all cases of the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name, explain string
		run           func(w *world)
	}{
		{"Timeline", "A record has the timeline of its task, its times, its attempts and its last error.", testTimeline},
		{"Original", "The original message of a task is kept, and pages leave it out.", testOriginal},
		{"Late", "Late events complete the timeline and never move a state back; an entry stands once.", testLate},
		{"NewLife", "A requeued task begins a new life, whatever its earlier one told.", testNewLife},
		{"Headers", "A task is found by its headers, also after they changed.", testHeaders},
		{"Pages", "Pages continue where the one before ended, each record once, the newest change first.", testPages},
		{"Copies", "A caller may change the records it got.", testCopies},
		{"Missing", "A task without events is ErrNotFound, and an empty history has no records.", testMissing},
		{"BadQueries", "What the parser refuses and a wrong cursor are errors.", testBadQueries},
		{"Counts", "Entries count once in the minute of their time, by queue, name and kind.", testCounts},
		{"LongWaits", "Sums of times stop at the longest duration: a producer's clock may begin in 1970.", testLongWaits},
		{"ManyNames", "Names beyond MaxLabels count as other.", testManyNames},
		{"CountStops", "A count stops at MaxCount and says so.", testCountStops},
		{"Gaps", "A page has the gaps of its time; gaps without a pause between them are one.", testGaps},
		{"Before", "Record returns the latest time of earlier batches.", testBefore},
		{"Sweep", "Sweep deletes by age and by number, the oldest changes first, at most MaxDeleted at once.", testSweep},
		{"Together", "Recorders that write the same events at once write them once.", testTogether},
		{"EndedContext", "A ctx that has ended is an error, and nothing is written.", testEndedContext},
		{"Model", "Whatever order events come in, records, pages and counts are those of the model.", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("why: " + c.explain)
				}
			})
			view := open(t)
			c.run(&world{T: t, open: open, view: view, s: view(t)})
		})
	}
}

// world is the store under test with its helpers, which fail the case.
type world struct {
	*testing.T
	open Open
	view func(t *testing.T) history.Store
	s    history.Store
}

// ctx returns a context that ends after patience or with the case.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// base is the time of the events of a case.
func base() time.Time { return time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC) }

// at returns the time that is seconds after base.
func at(seconds float64) time.Time { return base().Add(time.Duration(seconds * float64(time.Second))) }

// event returns an event of type typ of the task id, seconds after base. Each function in set may
// change the event and its further facts.
func event(typ, id string, seconds float64, set ...func(e *events.Event, i *events.TaskInfo)) events.Event {
	e := events.Event{Type: typ, TaskID: task.ID(id), NodeID: "node-1", Time: at(seconds)}
	if typ == events.TaskSent || typ == events.TaskReceived {
		e.Name, e.Queue = "mail.send", "mails"
	}
	i := events.TaskInfo{Attempt: 1}
	for _, f := range set {
		f(&e, &i)
	}
	e.Fields = i.Fields(e.Fields)
	return e
}

// attempt returns a function for event that makes the event one of attempt n, from 1.
func attempt(n int) func(*events.Event, *events.TaskInfo) {
	return func(e *events.Event, i *events.TaskInfo) { e.Retries, i.Attempt = n-1, n }
}

// life returns a function for event that makes the event one of life n, from 0.
func life(n int) func(*events.Event, *events.TaskInfo) {
	return func(_ *events.Event, i *events.TaskInfo) { i.Life = n }
}

// named returns a function for event that sets the name of the task and its queue.
func named(name, queue string) func(*events.Event, *events.TaskInfo) {
	return func(e *events.Event, _ *events.TaskInfo) { e.Name, e.Queue = name, queue }
}

// failed returns a function for event that sets text and class of the error and a run time of 30
// ms. With retry another attempt follows; otherwise the task becomes a dead letter.
func failed(text, class string, retry bool) func(*events.Event, *events.TaskInfo) {
	return func(e *events.Event, i *events.TaskInfo) {
		e.Exception, i.Class, e.Retry, i.DeadLetter, e.Runtime = text, class, retry, !retry, 30*time.Millisecond
	}
}

// header returns a function for event that sets the only header of the task.
func header(k, v string) func(*events.Event, *events.TaskInfo) {
	return func(_ *events.Event, i *events.TaskInfo) { i.Headers = map[string]string{k: v} }
}

// record writes events in one batch and fails the case on an error.
func (w *world) record(es ...events.Event) {
	w.Helper()
	w.write(&history.Batch{Facts: facts(es...), Now: at(0)})
}

// facts normalizes the events, which it changes, and returns the facts of each. It panics for an
// invalid event.
func facts(es ...events.Event) []*history.Facts {
	var all []*history.Facts
	for i := range es {
		if err := events.Normalize(&es[i]); err != nil {
			panic(err)
		}
		all = append(all, history.NewFacts(&es[i]))
	}
	return all
}

// write calls Record with b and returns its result. It fails the case on an error.
func (w *world) write(b *history.Batch) (before time.Time) {
	w.Helper()
	before, err := w.s.Record(w.ctx(), b)
	if err != nil {
		w.Fatal(err)
	}
	return before
}

// get returns the record of a task and fails the case on an error.
func (w *world) get(id string) history.Record {
	w.Helper()
	r, err := w.s.Get(w.ctx(), task.ID(id))
	if err != nil {
		w.Fatalf("Get %s: %v", id, err)
	}
	return r
}

// query parses a query and fails t if the text is none.
func query(t testing.TB, text string) history.Query {
	t.Helper()
	q, err := history.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// page returns a page of the records that a query selects. It fails the case on an error.
func (w *world) page(text string, o history.PageOptions) history.Page {
	w.Helper()
	p, err := w.s.Page(w.ctx(), query(w, text), o)
	if err != nil {
		w.Fatalf("%s: %v", text, err)
	}
	return p
}

// found fails the case unless a query finds exactly these tasks, in any order, on one page without
// timelines, and Count returns their number.
func (w *world) found(text string, want ...string) {
	w.Helper()
	p := w.page(text, history.PageOptions{Limit: history.MaxPage})
	var got []string
	for _, r := range p.Records {
		got = append(got, string(r.ID))
		if r.Timeline != nil {
			w.Errorf("%s: a page has the timeline of %s", text, r.ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || p.Next != "" || !p.Complete {
		w.Errorf("%s found %q, want %q (next %q, complete %v)", text, got, want, p.Next, p.Complete)
	}
	n, err := w.s.Count(w.ctx(), query(w, text))
	if err != nil || n.N != len(want) || n.AtLeast {
		w.Errorf("%s: count %+v, %v; want %d", text, n, err, len(want))
	}
}

// story returns the eight events of a task that failed once, waited and succeeded.
func story(id string) []events.Event {
	return []events.Event{
		event(events.TaskSent, id, 0, func(e *events.Event, _ *events.TaskInfo) { e.NodeID, e.Args = "web", "[1]" }),
		event(events.TaskReceived, id, 1, func(e *events.Event, _ *events.TaskInfo) { e.Args = "[1]" }),
		event(events.TaskStarted, id, 2),
		event(events.TaskSent, id, 3, attempt(2), func(_ *events.Event, i *events.TaskInfo) { i.Due = at(5) }),
		event(events.TaskFailed, id, 3.1, failed("no such host", "net.DNSError", true)),
		event(events.TaskReceived, id, 6, attempt(2), func(e *events.Event, _ *events.TaskInfo) { e.NodeID = "node-2" }),
		event(events.TaskStarted, id, 7, attempt(2), func(e *events.Event, _ *events.TaskInfo) { e.NodeID = "node-2" }),
		event(events.TaskSucceeded, id, 8, attempt(2), func(e *events.Event, _ *events.TaskInfo) {
			e.NodeID, e.Result, e.Runtime = "node-2", `"ok"`, time.Second
		}),
	}
}

// testOriginal expects that the original message of a task is kept until its end, and that pages
// leave it out. A later first receipt without one ends that.
func testOriginal(w *world) {
	body := "\x00\xff body"
	w.record(event(events.TaskReceived, "kept", 1, func(_ *events.Event, i *events.TaskInfo) {
		i.Original, i.OriginalType = []byte(body), "application/x-body"
	}))
	w.record(event(events.TaskReceived, "kept", 2, attempt(2)), event(events.TaskSucceeded, "kept", 3, attempt(2)))
	if r := w.get("kept"); string(r.Original) != body || r.OriginalType != "application/x-body" || r.State != history.Succeeded {
		w.Errorf("the record is %+v", r)
	}
	for _, r := range w.page("id:kept", history.PageOptions{}).Records {
		if r.Original != nil || r.OriginalType != "" {
			w.Errorf("a page has %+v", r)
		}
	}
	w.record(event(events.TaskReceived, "kept", 4)) // the id was used again
	if r := w.get("kept"); r.Original != nil || r.OriginalType != "" {
		w.Errorf("after a receipt without an original message: %+v", r)
	}
}

// testTimeline checks the record of a task after its first attempt and at its end. It expects that
// queries find the task by each field.
func testTimeline(w *world) {
	all := story("a")
	w.record(all[:5]...)
	if r := w.get("a"); r.State != history.Retrying || r.Error != "no such host" || r.Class != "net.DNSError" || r.Due != at(5) || r.Attempts != 1 {
		w.Errorf("after a failed attempt: %+v", r)
	}
	w.found("state:retrying error~HOST class:net.* attempts:1", "a")
	w.record(all[5:]...)
	got := w.get("a")
	kinds := []history.Kind{}
	for _, e := range got.Timeline {
		kinds = append(kinds, e.Kind)
	}
	if want := []history.Kind{"sent", "received", "started", "retried", "sent", "received", "started", "succeeded"}; !slices.Equal(kinds, want) {
		w.Errorf("timeline %v, want %v", kinds, want)
	}
	got.Timeline = nil
	want := history.Record{
		ID: "a", Name: "mail.send", Queue: "mails", State: history.Succeeded, Node: "node-2", Changed: at(8), Sent: at(0), Received: at(6), Started: at(7),
		Ended: at(8), Due: at(5), Wait: 2 * time.Second, Run: time.Second, Attempts: 2, Args: "[1]", Result: `"ok"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	for _, text := range []string{
		"", "state:succeeded", "id:a", "name:mail.* -queue:other", "node:node-2", "root:a", "wait>1s wait<3s", "run>900ms", "attempts>1", "-error~host", "-state:failed,dead",
		"since:2026-03-04T10:00:08Z", "before:2026-03-04T10:00:08.001Z", `group:""`,
	} {
		w.found(text, "a")
	}
	for _, text := range []string{
		"state:failed", "id:b", "name:mail", "queue:mail", "wait>2s", "run<1s", "attempts<2", "error~host", "-root:a", "since:2026-03-04T10:00:08.001Z",
		"before:2026-03-04T10:00:08Z", "-since:2026-03-04T10:00:08Z", "header.tenant:*", "class:net.DNSError",
	} {
		w.found(text)
	}
}

// testLate records the end of a task first and its other events in any order, some twice. It
// expects that the state never moves back, and the same record as of events in order.
func testLate(w *world) {
	all := story("a")
	w.record(all[7])
	if r := w.get("a"); r.State != history.Succeeded || r.Name != "" {
		w.Errorf("of the end alone: %+v", r)
	}
	for _, i := range []int{3, 0, 6, 0, 4, 1, 5, 7, 2} {
		w.record(all[i])
		if r := w.get("a"); r.State != history.Succeeded {
			w.Errorf("after event %d the state is %s", i, r.State)
		}
	}
	late := w.get("a")
	w.record(story("b")...)
	want := w.get("b")
	want.ID = "a"
	if diff := cmp.Diff(want, late); diff != "" {
		w.Errorf("-in order +late:\n%s", diff)
	}
}

// testNewLife expects that an event of a later life replaces state, error and attempts of a failed
// task. A further attempt of the earlier life in the same batch changes nothing.
func testNewLife(w *world) {
	w.record(
		event(events.TaskReceived, "a", 1), event(events.TaskStarted, "a", 2), event(events.TaskFailed, "a", 3, failed("broken", "Bug", false)),
	)
	if r := w.get("a"); r.State != history.Failed || !r.DeadLetter || r.Ended != at(3) {
		w.Errorf("%+v", r)
	}
	w.found("state:dead", "a")
	w.found("state:failed class:Bug", "a")
	w.record(event(events.TaskReceived, "a", 10, life(1)), event(events.TaskFailed, "a", 11, failed("late", "Late", false), attempt(3)))
	if r := w.get("a"); r.State != history.Received || r.DeadLetter || r.Error != "" || r.Life != 1 || !r.Ended.IsZero() || r.Attempts != 0 || len(r.Timeline) != 5 {
		w.Errorf("requeued: %+v", r)
	}
	w.found("state:failed")
	w.found("state:received -class:Bug,Late", "a")
}

// testHeaders expects that queries find tasks by headers, whole or by prefix, and only by their
// present values.
func testHeaders(w *world) {
	w.record(
		event(events.TaskSent, "a", 1, header("tenant", "42")), event(events.TaskSent, "b", 1, header("tenant", "421")), event(events.TaskSent, "c", 1),
		event(events.TaskSent, "d", 1, header("other", "42")),
	)
	w.found("header.tenant=42", "a")
	w.found("header.tenant:42*", "a", "b")
	w.found("header.tenant:421,42 state:pending", "a", "b")
	w.found("-header.tenant:42", "b", "c", "d")
	w.found("header.unknown:*")
	w.record(event(events.TaskReceived, "a", 2, header("tenant", "43")))
	w.found("header.tenant=42")
	w.found("header.tenant=43 state:received", "a")
	w.record(event(events.TaskReceived, "a", 3))
	w.found("header.tenant:*", "b")
	w.found("-header.tenant:43 state:received", "a")
}

// testCopies expects that a record which the caller has changed is found as it was.
func testCopies(w *world) {
	w.record(event(events.TaskSent, "a", 1, header("tenant", "42")))
	for _, r := range w.page("header.tenant=42", history.PageOptions{}).Records {
		r.Headers["tenant"] = "changed"
	}
	got, err := w.s.Get(w.ctx(), "a")
	if err != nil {
		w.Fatal(err)
	}
	got.Headers["tenant"], got.Timeline[0].Kind = "changed", "changed"
	w.found("header.tenant=42", "a")
	if r := w.page("header.tenant=42", history.PageOptions{}).Records[0]; r.Headers["tenant"] != "42" {
		w.Errorf("the caller has changed the stored headers: %v", r.Headers)
	}
}

// testPages expects that pages of a list of 25 records have each record once, the newest change
// first.
func testPages(w *world) {
	const n = 25
	for i := range n {
		w.record(event(events.TaskSent, fmt.Sprintf("t%02d", i), float64(i/2))) // two of each time
	}
	var got []string
	o := history.PageOptions{Limit: 7}
	for range n {
		p := w.page("state:pending name:mail.send", o)
		for i, r := range p.Records {
			if got = append(got, string(r.ID)); i > 0 && r.Changed.After(p.Records[i-1].Changed) {
				w.Errorf("%s changed after the record before it", r.ID)
			}
		}
		if o.After = p.Next; o.After == "" {
			break
		}
	}
	slices.Sort(got)
	if unique := slices.Compact(slices.Clone(got)); len(got) != n || len(unique) != n {
		w.Errorf("%d records, %d different ones, want %d", len(got), len(unique), n)
	}
	if p := w.page("", history.PageOptions{Limit: n}); len(p.Records) != n || p.Next != "" {
		w.Errorf("a page of all: %d records, next %q", len(p.Records), p.Next)
	}
}

// testMissing expects ErrNotFound for a task without events, and that an empty history has no
// records, counts or rows to sweep.
func testMissing(w *world) {
	if _, err := w.s.Get(w.ctx(), "none"); !errors.Is(err, history.ErrNotFound) {
		w.Errorf("%v", err)
	}
	if _, err := w.s.Get(w.ctx(), "no id"); !errors.Is(err, task.ErrBadID) {
		w.Errorf("%v", err)
	}
	w.found("")
	w.found("name:x state:failed header.k:v class:c root:r")
	if p := w.page("since:1h", history.PageOptions{}); p.Records == nil || p.Query.Terms[0].Time.At.IsZero() {
		w.Errorf("%+v", p)
	}
	if n, err := w.s.Sweep(w.ctx(), at(0), 1); n != 0 || err != nil {
		w.Errorf("%d, %v", n, err)
	}
	if rows, err := w.s.Counts(w.ctx(), history.CountQuery{}); len(rows) != 0 || rows == nil || err != nil {
		w.Errorf("%v, %v", rows, err)
	}
}

// testBadQueries expects ErrQuery for a query that the parser refuses and for a wrong limit. It
// expects ErrMalformed for a wrong cursor, and that texts with SQL find nothing.
func testBadQueries(w *world) {
	w.record(story("a")...)
	bad := history.Query{Terms: []history.Term{{Field: "colour", Op: history.OpIs, Values: []history.Value{{Text: "x"}}}}}
	if _, err := w.s.Page(w.ctx(), bad, history.PageOptions{}); !errors.Is(err, history.ErrQuery) {
		w.Errorf("%v", err)
	}
	if _, err := w.s.Count(w.ctx(), bad); !errors.Is(err, history.ErrQuery) {
		w.Errorf("%v", err)
	}
	for _, limit := range []int{-1, history.MaxPage + 1} {
		if _, err := w.s.Page(w.ctx(), history.Query{}, history.PageOptions{Limit: limit}); !errors.Is(err, history.ErrQuery) {
			w.Errorf("limit %d: %v", limit, err)
		}
	}
	for _, cursor := range []string{"x", "1", "1.x", "9999999999999999999999.1"} {
		if _, err := w.s.Page(w.ctx(), history.Query{}, history.PageOptions{After: cursor}); !errors.Is(err, history.ErrMalformed) {
			w.Errorf("cursor %q: %v", cursor, err)
		}
	}
	// texts are never part of a statement
	for _, text := range []string{`name:"'; DROP TABLE x --"`, `error~"100% \\ \" '"`, `header."$1":x`, "node:$1,$2*"} {
		q, err := history.Parse(text)
		if err != nil {
			continue
		}
		if p, err := w.s.Page(w.ctx(), q, history.PageOptions{}); err != nil || len(p.Records) != 0 {
			w.Errorf("%s: %d, %v", text, len(p.Records), err)
		}
	}
}
