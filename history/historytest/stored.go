package historytest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

// counts returns the rows of Counts and fails the case on an error.
func (w *world) counts(q history.CountQuery) []history.Bucket {
	w.Helper()
	rows, err := w.s.Counts(w.ctx(), q)
	if err != nil {
		w.Fatal(err)
	}
	return rows
}

// testCounts expects that each entry of a timeline counts once, and that CountQuery selects and
// divides the counts by time, queue and name.
func testCounts(w *world) {
	w.record(story("a")...)
	w.record(story("a")...) // again
	w.record(event(events.TaskSent, "b", 61, named("mail.count", "mails")), event(events.TaskSent, "c", 62, named("mail.count", "slow")))
	want := []history.Bucket{
		{Kind: history.KindRetried, N: 1, Run: 30 * time.Millisecond},
		{Kind: history.KindSent, N: 4},
		{Kind: history.KindStarted, N: 2, Wait: 4 * time.Second},
		{Kind: history.KindSucceeded, N: 1, Run: time.Second},
	}
	if diff := cmp.Diff(want, w.counts(history.CountQuery{})); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	want = []history.Bucket{
		{Minute: at(60), Queue: "mails", Name: "mail.count", Kind: history.KindSent, N: 1},
		{Minute: at(60), Queue: "slow", Name: "mail.count", Kind: history.KindSent, N: 1},
	}
	if diff := cmp.Diff(want, w.counts(history.CountQuery{Since: at(61), PerMinute: true, PerQueue: true, PerName: true})); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	want = []history.Bucket{{Queue: "mails", Kind: history.KindSent, N: 1}, {Queue: "slow", Kind: history.KindSent, N: 1}}
	if diff := cmp.Diff(want, w.counts(history.CountQuery{Name: "mail.count", PerQueue: true})); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	want = []history.Bucket{{Name: "mail.count", Kind: history.KindSent, N: 1}, {Name: "mail.send", Kind: history.KindRetried, N: 1, Run: 30 * time.Millisecond}}
	// the whole minute of Since
	if diff := cmp.Diff(want, w.counts(history.CountQuery{Queue: "mails", Since: at(30), Before: at(120), PerName: true})[:2]); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	if rows := w.counts(history.CountQuery{Before: base()}); len(rows) != 0 {
		w.Errorf("before the first event: %v", rows)
	}
}

// testLongWaits expects that sums of waits of 56 years each stop at the longest duration.
func testLongWaits(w *world) {
	longest := history.Bucket{Kind: history.KindStarted, N: 18, Wait: math.MaxInt64}
	for second := range 3 {
		var es []events.Event
		for i := range 6 { // of 56 years each
			id := fmt.Sprintf("t%d-%d", second, i)
			sent := event(events.TaskSent, id, 0)
			sent.Time = time.Unix(1, 0)
			es = append(es, sent, event(events.TaskStarted, id, float64(60*second/2)))
		}
		w.record(es...)
	}
	if diff := cmp.Diff(longest, w.counts(history.CountQuery{Since: base()})[0]); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	longest.Minute, longest.N = base(), 12
	if diff := cmp.Diff(longest, w.counts(history.CountQuery{Since: base(), PerMinute: true})[0]); diff != "" {
		w.Errorf("a minute: -want +got:\n%s", diff)
	}
}

// testManyNames expects that tasks with names beyond MaxLabels are found as "other", and that their
// records have their own names.
func testManyNames(w *world) {
	var es []events.Event
	for i := range history.MaxLabels + 20 {
		es = append(es, event(events.TaskSent, fmt.Sprint("t", i), float64(i), named(fmt.Sprint("name-", i), "mails")))
	}
	w.record(es...)
	p := w.page("name:name-*", history.PageOptions{Limit: history.MaxPage})
	rest, err := w.s.Count(w.ctx(), query(w, "name:other"))
	if err != nil {
		w.Fatal(err)
	}
	all, err := w.s.Count(w.ctx(), query(w, "name:name-*"))
	if err != nil || all.N+rest.N != len(es) || len(p.Records) != min(all.N, history.MaxPage) {
		w.Errorf("%d by name, %d others, %d in a page, %v; want %d", all.N, rest.N, len(p.Records), err, len(es))
	}
	if r := w.get(fmt.Sprint("t", len(es)-1)); r.Name != fmt.Sprint("name-", len(es)-1) {
		w.Errorf("the record has the name %q", r.Name)
	}
}

// testCountStops expects the exact number from Count for a tenth of MaxCount records. It writes no
// more, because MaxCount records would be slow.
func testCountStops(w *world) {
	var es []events.Event
	for i := range history.MaxCount / 10 {
		es = append(es, event(events.TaskSent, fmt.Sprint("t", i), float64(i)))
	}
	w.record(es...)
	if n, err := w.s.Count(w.ctx(), query(w, "state:pending")); n.N != len(es) || n.AtLeast || err != nil {
		w.Errorf("%+v, %v; want %d", n, err, len(es))
	}
}

// testGaps expects that a page has the gaps in the time of its query. Gaps without a pause between
// them are one, and Sweep deletes old gaps.
func testGaps(w *world) {
	gap := func(since, before float64, dropped int64) {
		w.write(&history.Batch{Gap: &history.Gap{Since: at(since), Before: at(before), Dropped: dropped}, Now: at(before)})
	}
	gap(0, 5, 0)
	gap(100, 101, 10)
	gap(101.5, 103, 20)
	want := []history.Gap{{Since: at(100), Before: at(103), Dropped: 30}, {Since: at(0), Before: at(5)}}
	if diff := cmp.Diff(want, w.page("", history.PageOptions{}).Gaps); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], w.page("since:2026-03-04T10:00:30Z", history.PageOptions{}).Gaps); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], w.page("before:2026-03-04T10:01:40Z", history.PageOptions{}).Gaps); diff != "" {
		w.Errorf("-want +got:\n%s", diff)
	}
	if _, err := w.s.Sweep(w.ctx(), at(60), 0); err != nil {
		w.Fatal(err)
	}
	if diff := cmp.Diff(want[:1], w.page("", history.PageOptions{}).Gaps); diff != "" {
		w.Errorf("swept: -want +got:\n%s", diff)
	}
}

// testBefore expects that Record returns the latest Batch.Now of all earlier batches of two stores.
func testBefore(w *world) {
	other := &world{T: w.T, s: w.view(w.T)}
	if before := w.write(&history.Batch{Now: at(5)}); !before.IsZero() {
		w.Errorf("the first: %v", before)
	}
	if before := other.write(&history.Batch{Now: at(3)}); !before.Equal(at(5)) {
		w.Errorf("the second: %v", before)
	}
	if before := w.write(&history.Batch{Now: at(7)}); !before.Equal(at(5)) {
		w.Errorf("the third: %v", before)
	}
}

// testSweep expects that Sweep deletes records by age and by number, the oldest changes first, at
// most MaxDeleted at once, and old counts.
func testSweep(w *world) {
	var es []events.Event
	for i := range history.MaxDeleted + 100 {
		es = append(es, event(events.TaskSent, fmt.Sprint("t", i), float64(i), header("k", "v")))
	}
	w.record(es...)
	sweep := func(before time.Time, most, want int) {
		w.Helper()
		if n, err := w.s.Sweep(w.ctx(), before, most); n != want || err != nil {
			w.Errorf("deleted %d, %v; want %d", n, err, want)
		}
	}
	sweep(at(10), 0, 10)
	sweep(at(10), 0, 0)
	sweep(at(10), history.MaxDeleted, 90)
	sweep(at(99), 50, history.MaxDeleted-50)
	sweep(at(99), 50, 0)
	last := history.MaxDeleted + 100
	if p := w.page("header.k:v", history.PageOptions{}); len(p.Records) != 50 || p.Records[49].ID != task.ID(fmt.Sprint("t", last-50)) {
		w.Errorf("%d records are left", len(p.Records))
	}
	// the first minute had 60
	if rows := w.counts(history.CountQuery{}); len(rows) != 1 || rows[0].N != int64(last-60) {
		w.Errorf("%+v", rows)
	}
	w.record(es[0]) // it is a new record
	w.found("id:t0", "t0")
}

// testTogether writes the same 20 batches through four stores at the same time. It expects that
// each entry counts once.
func testTogether(w *world) {
	var batches [][]events.Event
	for i := range 20 {
		batches = append(batches, story(fmt.Sprint("t", i%10)))
	}
	var all sync.WaitGroup
	for range 4 {
		s := w.view(w.T)
		all.Go(func() {
			for _, b := range batches {
				if _, err := s.Record(w.ctx(), &history.Batch{Facts: facts(slices.Clone(b)...), Now: at(0)}); err != nil {
					w.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, b := range w.counts(history.CountQuery{}) {
		want := map[history.Kind]int64{history.KindSent: 20, history.KindStarted: 20, history.KindRetried: 10, history.KindSucceeded: 10}[b.Kind]
		if b.N != want {
			w.Errorf("%s: %d, want %d", b.Kind, b.N, want)
		}
	}
	if n, err := w.s.Count(w.ctx(), query(w, "state:succeeded attempts:2")); n.N != 10 || err != nil {
		w.Errorf("%+v, %v", n, err)
	}
}

// testEndedContext expects an error of Record, Page and Get with a context that has ended, and that
// nothing is stored.
func testEndedContext(w *world) {
	ctx, cancel := context.WithCancel(w.ctx())
	cancel()
	if _, err := w.s.Record(ctx, &history.Batch{Facts: facts(story("a")...)}); err == nil {
		w.Error("Record")
	}
	if _, err := w.s.Page(ctx, history.Query{}, history.PageOptions{}); err == nil {
		w.Error("Page")
	}
	if _, err := w.s.Get(ctx, "a"); err == nil || errors.Is(err, history.ErrNotFound) {
		w.Errorf("Get: %v", err)
	}
	w.found("")
}
