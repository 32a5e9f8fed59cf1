package historytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

// modelTasks is the number of tasks of testModel.
const modelTasks = 12

// model is a history that merges each event alone, in the order in which it happened.
type model struct {
	facts map[task.ID]*history.Facts
	all   []events.Event // as they happened
}

// anyEvent draws an event of one of a few tasks.
func anyEvent() *rapid.Generator[events.Event] {
	types := append(history.EventTypes(), events.TaskFailed, events.TaskFailed)
	words := rapid.SampledFrom([]string{"mail.send", "mail.count", "x", "Über"})
	return rapid.Custom(func(t *rapid.T) events.Event {
		pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		e := events.Event{
			Type: pick("type", types...), TaskID: task.ID(fmt.Sprint("t", rapid.IntRange(0, modelTasks-1).Draw(t, "task"))),
			NodeID: pick("node", "n1", "n2"), Time: at(float64(rapid.IntRange(0, 200).Draw(t, "time"))),
			Name: words.Draw(t, "name"), Queue: pick("queue", "q1", "q2"), Args: pick("args", "", "[1]", "[2]"), Result: pick("result", "", "1"),
			Exception: pick("error", "Timeout of host", "no 100% _ \\", ""), Stack: pick("stack", "", "main.go:1"), Retry: rapid.Bool().Draw(t, "retry"),
			Runtime: time.Duration(rapid.IntRange(0, 3).Draw(t, "run")) * 1500 * time.Microsecond,
		}
		i := events.TaskInfo{
			Life: rapid.IntRange(0, 1).Draw(t, "life"), Generation: rapid.IntRange(0, 2).Draw(t, "generation"), Attempt: rapid.IntRange(1, 3).Draw(t, "attempt"),
			Root: task.ID(pick("root", "", "t1", "t2")), Parent: task.ID(pick("parent", "", "t1")), Group: task.ID(pick("group", "", "g1", "g2")),
			Class: pick("class", "", "Timeout", "Other"), DeadLetter: rapid.Bool().Draw(t, "dead"),
		}
		if rapid.Bool().Draw(t, "has headers") {
			i.Headers = map[string]string{"tenant": pick("tenant", "42", "421", ""), "tier": "gold"}
		}
		if e.Type == events.TaskSent && rapid.Bool().Draw(t, "delayed") {
			i.Due = e.Time.Add(time.Minute)
		}
		e.Fields = i.Fields(map[string]any{"expired": rapid.Bool().Draw(t, "expired"), "done": rapid.IntRange(0, 9).Draw(t, "done"), "total": 9, "note": "n"})
		return e
	})
}

// anyQuery draws the text of a query.
func anyQuery() *rapid.Generator[string] {
	terms := []string{
		"state:failed", "state:dead", "state:pending,received,started", "state:succeeded,retrying", "state:revoked,expired,awaiting",
		"name:mail.*", "name:mail.send,x", "name:Ü*", `name:""`, "name:none", "queue:q1", "queue:q*", "queue:q2,q1", `queue:""`, "node:n1", "node:n*",
		"root:t1", "root:t*", "root:t1,t2,t3", `root:""`, "parent:t1", "group:g1,g2", "group:g*", "class:Timeout", "class:*", "class:Other,Timeout",
		"error~timeout", `error~"100% _"`, `error~"\\"`, "header.tenant:42", "header.tenant:42*", "header.tenant:42,421", `header.tenant:""`, "header.tier:gold",
		"header.none:*", "wait>1s", "wait<10s", "run>1ms", "run<2ms", "attempts:1", "attempts>1", "attempts<2", "id:t1,t5,t9", "id:t1*",
		"since:2026-03-04T10:01:00Z", "before:2026-03-04T10:02:00Z", "since:2026-03-04T10:03:20Z",
	}
	return rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "terms") {
			parts = append(parts, rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "not")+rapid.SampledFrom(terms).Draw(t, "term"))
		}
		return strings.Join(parts, " ")
	})
}

// testModel records random events in any order and in batches of any size, some of them twice. It
// compares the store with the model.
func testModel(w *world) {
	rapid.Check(w.T, func(t *rapid.T) {
		s := w.open(w.T)(w.T)
		m := model{facts: map[task.ID]*history.Facts{}}
		m.all = rapid.SliceOfN(anyEvent(), 1, 60).Draw(t, "events")
		m.merge()
		arriving := rapid.Permutation(m.all).Draw(t, "arriving")
		arriving = append(arriving, rapid.SliceOfN(rapid.SampledFrom(m.all), 0, 10).Draw(t, "again")...)
		for len(arriving) > 0 {
			n := rapid.IntRange(1, len(arriving)).Draw(t, "batch")
			if _, err := s.Record(w.ctx(), &history.Batch{Facts: facts(slices.Clone(arriving[:n])...), Now: at(0)}); err != nil {
				t.Fatal(err)
			}
			arriving = arriving[n:]
		}
		m.compareRecords(t, w, s)
		for range 6 {
			m.compareQuery(t, w, s)
		}
		m.compareCounts(t, w, s)
	})
}

// merge merges m.all into m.facts, one event after the other.
func (m *model) merge() {
	for _, f := range facts(slices.Clone(m.all)...) {
		if m.facts[f.ID] == nil {
			m.facts[f.ID] = &history.Facts{ID: f.ID}
		}
		m.facts[f.ID].Merge(f)
	}
}

// compareRecords fails t unless s has the record of the model for each task.
func (m *model) compareRecords(t *rapid.T, w *world, s history.Store) {
	for id, f := range m.facts {
		got, err := s.Get(w.ctx(), id)
		if err != nil {
			t.Fatalf("Get %s: %v", id, err)
		}
		if diff := gocmp.Diff(f.Record(), got); diff != "" {
			t.Fatalf("%s (-model +store):\n%s", id, diff)
		}
	}
}

// compareQuery draws a query and a page size. It fails t unless the pages and the count of s are
// those of the model.
func (m *model) compareQuery(t *rapid.T, w *world, s history.Store) {
	text := anyQuery().Draw(t, "query")
	q := query(w, text)
	var want []history.Record
	for _, f := range m.facts {
		if r := f.Summary(); q.Match(&r) {
			want = append(want, r)
		}
	}
	var got []history.Record
	o := history.PageOptions{Limit: rapid.IntRange(1, 8).Draw(t, "limit")}
	for pages := 0; ; pages++ {
		p, err := s.Page(w.ctx(), q, o)
		if err != nil || pages > len(want) || len(p.Records) > o.Limit || !p.Complete {
			t.Fatalf("%q: page %d of %d records, complete %v, %v", text, pages, len(p.Records), p.Complete, err)
		}
		got = append(got, p.Records...)
		if o.After = p.Next; o.After == "" {
			break
		}
	}
	if !slices.IsSortedFunc(got, func(a, b history.Record) int { return b.Changed.Compare(a.Changed) }) {
		t.Fatalf("%q: not the newest change first", text)
	}
	order := func(a, b history.Record) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(want, order)
	slices.SortFunc(got, order)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%q (-model +store):\n%s", text, diff)
	}
	if n, err := s.Count(w.ctx(), q); err != nil || n.N != len(want) || n.AtLeast {
		t.Fatalf("%q: count %+v, %v; want %d", text, n, err, len(want))
	}
}

// compareCounts fails t unless the counts of s by minute and kind are those of the model. It does
// not compare queue, name and wait, which depend on the order of the events.
func (m *model) compareCounts(t *rapid.T, w *world, s history.Store) {
	type key struct {
		minute int64
		kind   history.Kind
	}
	want, got := map[key]history.Bucket{}, map[key]history.Bucket{}
	add := func(to map[key]history.Bucket, b history.Bucket) {
		k := key{b.Minute.Unix(), b.Kind}
		sum := to[k]
		to[k] = history.Bucket{N: sum.N + b.N, Run: sum.Run + b.Run}
	}
	for _, f := range m.facts {
		for _, b := range f.Buckets(nil) {
			add(want, b)
		}
	}
	rows, err := s.Counts(w.ctx(), history.CountQuery{PerMinute: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range rows {
		add(got, b)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("counts (-model +store):\n%s", diff)
	}
}
