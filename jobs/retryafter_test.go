package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

func TestRetryAfterCounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", RetryAfter: " +90 seconds", Data: []byte(`{"x": 1.50}`)})
		start := time.Now().UTC()
		for k := 1; k <= 10; k++ {
			h := w.get("a")
			if string(h.Data) != `{"x": 1.50}` || h.Handouts != int32(k) || h.Attempt != int64(k) || h.State != jobs.RunQueued || h.Run != 1 || h.Token != int64(k) || !h.Scheduled.Equal(start) {
				w.Fatalf("%d: %s %+v", k, h.Data, h)
			}
			if !h.NextRun.Equal(h.LastRun.Add(90*time.Second)) || !h.Due.Equal(h.NextRun) {
				w.Fatalf("%+v", h)
			}
			w.books(id, `{"x": 1.50}`, k)
			time.Sleep(90*time.Second - time.Microsecond)
			w.none("a")
			time.Sleep(time.Microsecond)
		}
		h := w.get("a")
		if !h.GivenUp || h.State != jobs.Failed || string(h.Data) != `{"x": 1.50}` || h.Handouts != 10 {
			w.Fatalf("%+v", h)
		}
		w.state(jobs.Failed, id)
		w.none("a")
		if j := w.job(id); !strings.Contains(j.Reason, "10 times") || j.Token != 10 {
			w.Fatalf("%+v", j)
		}
		w.ok(w.GiveBack(w.Context(), h))
		w.state(jobs.Failed, id)
		if s := w.Stats(); s.Taken != 10 || s.GivenUp != 1 || s.GivenBack != 0 {
			w.Fatalf("%+v", s)
		}

		// After Requeue the count starts again.
		w.ok(w.Requeue(w.Context(), []jobs.ID{id}, ""))
		w.books(id, `{"x": 1.50}`, 0)
		if h = w.get("a"); h.GivenUp || h.Run != 2 || h.Token != 11 {
			w.Fatalf("%+v", h)
		}
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Token: 10}), jobs.ErrStale)
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Token: 11}))
		w.state("", id)
	})
}

func TestRetryAfterKeepsItsBooks(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", RetryAfter: "+1 MINUTE", Repeat: "SCHEDULED, +1 HOUR", Data: []byte(`{"retryAfterCount":7,"y":2}`)})
		time.Sleep(time.Second)
		if h := w.get("a"); string(h.Data) != `{"retryAfterCount":7,"y":2}` {
			w.Fatalf("%s", h.Data)
		}
		w.books(id, `{"retryAfterCount":7,"y":2}`, 1)
		time.Sleep(time.Minute)
		w.get("a")
		w.books(id, `{"retryAfterCount":7,"y":2}`, 2)
		// Progress neither loses nor sets the count.
		w.ok(w.Update(w.Context(), jobs.Update{ID: id, Token: 2, Data: []byte(`{"done": 50, "retryAfterCount": 0}`)}))
		w.books(id, `{"done": 50, "retryAfterCount": 0}`, 2)
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: id}))
		w.books(id, `{"done": 50, "retryAfterCount": 0}`, 0)
		w.next(id, "2000-01-01T01:00:00Z") // an hour after its first due time
		time.Sleep(time.Hour)
		w.get("a")
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Data: []byte(`{"z":[]}`)}))
		w.books(id, `{"z":[]}`, 0)
		w.next(id, "2000-01-01T02:00:00Z")
		time.Sleep(time.Hour)
		w.get("a")
		w.ok(w.Retry(w.Context(), jobs.Retry{ID: id, IgnoreRepeat: true}))
		w.books(id, `{"z":[]}`, 0)
		w.get("a")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: id}))
		w.books(id, `{"z":[]}`, 0)
	})
}

// books checks the data of a job, and the number of its claims in the current run.
func (w *world) books(id jobs.ID, data string, handouts int) {
	w.Helper()
	w.data(id, data)
	if j := w.job(id); j.Handouts != int32(handouts) {
		w.Fatalf("job %d was handed out %d times, want %d", id, j.Handouts, handouts)
	}
}

func TestRetryAfterAndRepeat(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		for i, c := range []struct{ repeat, after, next string }{
			{"", "+5 MINUTES", "2000-01-01T00:05:01Z"},
			{"SCHEDULED, +1 MINUTE", "+5 MINUTES", "2000-01-01T00:01:00Z"},
			{"STARTED, +1 MINUTE", "+5 MINUTES", "2000-01-01T00:01:01Z"},
			{"FINISHED, +1 MINUTE", "+5 MINUTES", "2000-01-01T00:01:01Z"},
			{"HOURLY", "+5 MINUTES", "2000-01-01T00:05:01Z"},
			{"SCHEDULED, -1 HOUR", "+5 MINUTES", "2000-01-01T00:05:01Z"}, // that time has passed
			{"SCHEDULED, +1 MONTH", "+2 months", "2000-02-01T00:00:00Z"},
			{"", "+999 YEARS", "2999-01-01T00:00:01Z"},
		} {
			name := fmt.Sprint("job", i)
			id := w.create(jobs.Spec{Name: name, Repeat: c.repeat, RetryAfter: c.after, FirstRun: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
			if i == 0 {
				time.Sleep(time.Second)
			}
			w.get(name)
			w.next(id, c.next)
		}
	})
}

// TestRetryAfterOfManualJobs shows that jobs whose names begin with "manual" are claimed again
// without limit and without a count.
func TestRetryAfterOfManualJobs(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "manual/x", RetryAfter: "+1 MINUTE", Repeat: "SCHEDULED, +1 DAY"})
		for range 12 {
			if h := w.get("manual/x"); h.GivenUp {
				w.Fatal("given up")
			}
			w.books(id, "{}", 0)
			time.Sleep(time.Minute)
		}
		w.finish(id)
		w.next(id, "2000-01-02T00:00:00Z")
	})
}

func TestRetryAfterMalformed(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		for _, text := range []string{"10", "5 MINUTES", "+5", "+5 MINUTES, +1 HOUR", "START OF DAY", "WEEKDAY 1", "+", "+ MINUTES", "+1000 MINUTES", "+1 FORTNIGHT", "\x00", "+5 MINUTES\x00"} {
			_, err := w.Create(w.Context(), jobs.Spec{Name: "a", RetryAfter: text})
			w.bad(err, "retryAfter")
		}
	})
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		id := w.create(jobs.Spec{Name: "a"})
		first := w.job(id)
		time.Sleep(time.Second)
		for range 3 {
			h := w.get("a")
			w.ok(w.GiveBack(ctx, h))
			w.is(w.GiveBack(ctx, h), jobs.ErrStale)
			j := w.job(id)
			if j.State != jobs.Queued || j.Run != 0 || j.Token != h.Token || !j.NextRun.Equal(first.NextRun) || !j.Due.Equal(j.NextRun) {
				w.Fatalf("%+v", j)
			}
		}
		h := w.get("a")
		if h.Run != 1 || h.Token != 4 {
			w.Fatalf("%+v", h)
		}
		w.ok(w.Finish(ctx, jobs.Finish{ID: id, Token: 4}))
		w.is(w.GiveBack(ctx, h), jobs.ErrNotFound)

		// Without a limit for jobs with RetryAfter, too.
		id = w.create(jobs.Spec{Name: "r", RetryAfter: "+1 MINUTE", Repeat: "SCHEDULED, +1 HOUR", Data: []byte(`{"n":1}`)})
		first = w.job(id)
		for range 12 {
			w.ok(w.GiveBack(ctx, w.get("r")))
			w.books(id, `{"n":1}`, 0)
			if j := w.job(id); j.State != jobs.Queued || j.Attempt != 0 || j.Run != 0 || !j.NextRun.Equal(first.NextRun) {
				w.Fatalf("%+v", j)
			}
		}
		kept := w.get("r")
		time.Sleep(time.Minute + time.Second)
		for range 12 {
			h := w.get("r")
			w.books(id, `{"n":1}`, 2)
			w.ok(w.GiveBack(ctx, h))
			if j := w.job(id); j.State != jobs.RunQueued || j.Run != 1 || !j.NextRun.Equal(kept.NextRun) {
				w.Fatalf("%+v", j)
			}
			w.is(w.GiveBack(ctx, kept), jobs.ErrStale)
		}
	})
}

func TestLeases(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		lease := func(name string, d time.Duration) jobs.Handout {
			w.Helper()
			out, err := w.Get(ctx, jobs.Request{Selector: jobs.Selector{Names: []string{name}}, Lease: d})
			w.ok(err)
			return out[0]
		}
		id := w.create(jobs.Spec{Name: "a"})
		h := lease("a", time.Minute)
		if h.State != jobs.Running || !h.Due.Equal(time.Now().Add(time.Minute)) {
			w.Fatalf("%+v", h)
		}
		time.Sleep(30 * time.Second)
		w.ok(w.Renew(ctx, id, h.Token, time.Minute))
		// the lease stays
		w.ok(w.Update(ctx, jobs.Update{ID: id, Token: h.Token, Data: []byte(`{"at":1}`)}))
		time.Sleep(time.Minute - time.Microsecond)
		w.none("a")
		time.Sleep(time.Microsecond)
		second := lease("a", time.Minute)
		if second.Run != 1 || second.Token != 2 || !second.Scheduled.Equal(h.Scheduled) || string(second.Data) != `{"at":1}` {
			w.Fatalf("%+v", second)
		}
		w.is(w.Renew(ctx, id, h.Token, time.Minute), jobs.ErrStale)
		w.is(w.Finish(ctx, jobs.Finish{ID: id, Token: h.Token}), jobs.ErrStale)
		w.is(w.Retry(ctx, jobs.Retry{ID: id, Token: h.Token}), jobs.ErrStale)
		w.is(w.Fail(ctx, jobs.Fail{ID: id, Token: h.Token}), jobs.ErrStale)
		w.is(w.Update(ctx, jobs.Update{ID: id, Token: h.Token, Data: []byte("{}")}), jobs.ErrStale)
		w.is(w.GiveBack(ctx, h), jobs.ErrStale)
		w.ok(w.GiveBack(ctx, second)) // the next worker continues the run
		third := lease("a", time.Minute)
		if third.Run != 1 || third.Token != 3 {
			w.Fatalf("%+v", third)
		}
		w.ok(w.Retry(ctx, jobs.Retry{ID: id, Token: 3}))
		if h := w.get("a"); h.Run != 2 || !h.Due.IsZero() {
			w.Fatalf("%+v", h)
		}
		time.Sleep(1000 * time.Hour)
		w.none("a") // without a lease it runs without a time limit
		w.ok(w.Renew(ctx, id, 4, time.Nanosecond))
		w.none("a")
		time.Sleep(time.Microsecond)
		w.get("a")
		w.bad(w.Renew(ctx, id, 5, 0), "lease")
		w.is(w.Renew(ctx, id, 4, time.Second), jobs.ErrStale)

		// A job with RetryAfter has no lease.
		id = w.create(jobs.Spec{Name: "r", RetryAfter: "+1 HOUR"})
		h = lease("r", time.Second)
		w.ok(w.Renew(ctx, id, h.Token, time.Second))
		time.Sleep(time.Hour - time.Microsecond)
		w.none("r")
		w.is(w.Renew(ctx, id, h.Token+1, time.Second), jobs.ErrStale)
		if got := w.Stats().Stale; got != 8 {
			w.Fatalf("%d were stale", got)
		}
	})
}

// TestPriorities shows that priority, then due time, determine the order of claims.
// Promises: B6.
func TestPriorities(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		now := time.Now()
		for i, c := range []struct{ priority, late int }{{500, 0}, {0, 0}, {250, 1}, {250, 3}, {250, 3}, {-5, 0}} {
			w.create(jobs.Spec{Name: fmt.Sprint("p", i), Priority: task.Set(c.priority), FirstRun: now.Add(-time.Duration(c.late) * time.Second)})
		}
		out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "p?", Priority: task.Set(250)}, Max: 2})
		w.ok(err)
		rest, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{"p0", "p1", "p2", "p5"}}, Max: 9})
		w.ok(err)
		var got []jobs.ID
		for _, h := range append(out, rest...) {
			got = append(got, h.ID)
		}
		if fmt.Sprint(got) != "[4 5 6 2 3 1]" {
			w.Fatal(got)
		}
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		long := strings.Repeat("x", 256)
		for _, c := range []struct {
			field string
			r     jobs.Request
		}{
			{"name", jobs.Request{}},
			{"name", jobs.Request{Selector: jobs.Selector{Names: []string{}}}},
			{"name", jobs.Request{Selector: jobs.Selector{Names: []string{"a", ""}}}},
			{"name", jobs.Request{Selector: jobs.Selector{Names: []string{long}}}},
			{"name", jobs.Request{Selector: jobs.Selector{Pattern: long}}},
			{"name", jobs.Request{Selector: jobs.Selector{Pattern: "a\x00"}}},
			{"name", jobs.Request{Selector: jobs.Selector{Pattern: "\xff"}}},
			{"name", jobs.Request{Selector: jobs.Selector{Pattern: "a", Names: []string{"a"}}}},
			{"lease", jobs.Request{Selector: jobs.Selector{Pattern: "a"}, Lease: -1}},
			{"numResults", jobs.Request{Selector: jobs.Selector{Pattern: "a"}, Max: -1}},
			{"numResults", jobs.Request{Selector: jobs.Selector{Pattern: "a"}, Max: jobs.MaxTake + 1}},
			{"jobPriority", jobs.Request{Selector: jobs.Selector{Pattern: "a", Priority: task.Set(1 << 40)}}},
		} {
			_, err := w.Get(w.Context(), c.r)
			w.bad(err, c.field)
		}
		for _, pattern := range []string{"[a-", strings.Repeat("*a", 100) + "b"} {
			_, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: pattern}})
			w.is(err, jobs.ErrNoJob)
		}
	})
}
