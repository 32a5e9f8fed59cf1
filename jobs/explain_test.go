package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/task"
)

// why checks the reasons of an explanation: their kinds and parts of their sentences.
func (w *world) why(id jobs.ID, kinds string, texts ...string) jobs.Explanation {
	w.Helper()
	e, err := w.Explain(w.Context(), id)
	w.ok(err)
	var got []string
	for _, y := range e.Reasons {
		got = append(got, string(y.Kind))
		if y.Text == "" || !strings.HasSuffix(y.Text, ".") {
			w.Errorf("no sentence: %q", y.Text)
		}
	}
	if diff := cmp.Diff(kinds, strings.Join(got, ", ")); diff != "" {
		w.Fatalf("%s\n%s", diff, e)
	}
	if e.Job.ID != id || e.At.IsZero() {
		w.Fatalf("job %d at %v", e.Job.ID, e.At)
	}
	for _, text := range texts {
		if !strings.Contains(e.String(), text) {
			w.Fatalf("%q is not in\n%s", text, e)
		}
	}
	return e
}

func TestExplainWithoutAQueue(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		_, err := w.Explain(w.Context(), 7)
		w.is(err, jobs.ErrNotFound)

		later := w.create(jobs.Spec{Name: "later", FirstRun: time.Now().Add(time.Hour)})
		if e := w.why(later, "due", "It is due at 2000-01-01 01:00:00 UTC."); !e.Reasons[0].At.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("at %v", e.Reasons[0].At)
		}
		now := w.create(jobs.Spec{Name: "now"})
		w.why(now, "due", `no free worker runs "now"`)
		w.get("now")
		w.why(now, "runs", "It has been running since 2000-01-01 00:00:00 UTC.")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: now, Reason: "disk full"}))
		w.why(now, "over", "It has been FAILED since 2000-01-01 00:00:00 UTC: disk full.")

		again := w.create(jobs.Spec{Name: "again", RetryAfter: "+5 MINUTES"})
		w.get("again")
		w.why(again, "runs", "claimed again at 2000-01-01 00:05:00 UTC")

		first := w.create(jobs.Spec{Name: "seq", SequenceKey: "k"})
		second := w.create(jobs.Spec{Name: "seq", SequenceKey: "k"})
		if e := w.why(second, "sequence", `sequence key "k"`, "which is QUEUED for"); e.Reasons[0].Job != first || e.Reasons[0].Key != "k" {
			t.Fatalf("%+v", e.Reasons)
		}

		parent := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		var children []jobs.ID
		for range 5 {
			children = append(children, w.create(jobs.Spec{Name: "child", Parent: parent}))
		}
		if e := w.why(children[0], "parent"); e.Reasons[0].Job != parent {
			t.Fatalf("%+v", e.Reasons)
		}
		w.finish(parent)
		if e := w.why(parent, "children, children, children, children", "5 children in all"); e.Reasons[0].Job != children[0] {
			t.Fatalf("%+v", e.Reasons)
		}

		_, err = w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{"seq"}}, Lease: time.Minute})
		w.ok(err)
		time.Sleep(2 * time.Minute)
		w.why(first, "lost", "did not renew the lease, which ended at 2000-01-01 00:01:00 UTC")
	})
}

func TestExplainInAQueue(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		in := func(name string, weight float64, windows string) jobs.ID {
			spec := jobs.Spec{Name: name, Queue: "q", Weight: task.Set(weight), Key: name, Timeout: task.Set(time.Hour)}
			if windows != "" {
				spec.Windows = mustWindows(t, windows, time.UTC)
			}
			return w.create(spec)
		}
		a := in("a", 6, "")
		w.why(a, "no runner", `No runner has ever served queue "q".`)
		l := w.lead(queue.Queue{Limit: 10}, "node-7")
		h := w.starts(l, "a")[0]
		w.why(a, "runs", "It has been running since 2000-01-01 00:00:00 UTC, and its lease ends at "+h.Due.UTC().Format("2006-01-02 15:04:05 UTC."))

		big, huge := in("big", 4.5, ""), in("huge", 12, "")
		w.starts(l)
		w.why(big, "throttled", `Its weight 4.5 does not fit into the limit 10 of queue "q": 1 running jobs use 6.`)
		w.why(huge, "throttled", "Its weight 12 is above the limit 10", "must run alone")
		window := in("window", 1, "09:00-17:00")
		if e := w.why(window, "window", "Its window opens at 2000-01-01 09:00:00 UTC."); e.Reasons[0].At.Hour() != 9 {
			t.Fatalf("%+v", e.Reasons)
		}
		closes := in("closes", 5, "00:00-00:10")
		w.starts(l)

		answered, err := w.Await(w.Context(), jobs.Await{ID: a, Token: h.Token})
		w.ok(err)
		if answered {
			t.Fatal("answered")
		}
		e := w.why(a, "answer", `It awaits the answer for key "a" until 2000-01-01 01:00:0`)
		if e.Reasons[0].Key != "a" || !e.Reasons[0].At.Equal(h.Deadline) {
			t.Fatalf("%+v", e.Reasons)
		}
		time.Sleep(15 * time.Minute)
		w.why(closes, "window", "its window is closed and opens at 2000-01-02 00:00:00 UTC")

		// Another process returns the same reasons.
		other, err := jobs.New(jobs.Config{Store: w.store.(*memjobs.Store).Join()})
		w.ok(err)
		there := &world{w.T, other, w.store}
		there.why(big, "throttled", "Its weight 4.5")

		// The job fails and will be retried.
		w.modify(a, func(j *jobs.Row) {
			j.State, j.Phase, j.Deadline, j.Reason = jobs.Queued, "", time.Time{}, "no luck"
			j.NextRun = time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC)
			j.Due = j.NextRun
		})
		w.why(a, "retry", "Attempt 1 has failed, and attempt 2 begins at 2000-01-01 00:30:00 UTC: no luck.")
		w.modify(a, func(j *jobs.Row) { j.Attempt, j.Reason = 0, "no handler for this name" })
		w.why(a, "retry", "Its last attempt does not count, and the next one begins at 2000-01-01 00:30:00 UTC: no handler for this name.")
		w.modify(a, func(j *jobs.Row) { j.State, j.Phase, j.Due, j.Respond = jobs.Running, jobs.Answered, time.Now(), true })
		w.why(a, "answered", `The answer for key "a" has come`)
		w.modify(a, func(j *jobs.Row) { j.Phase, j.Deadline, j.Due = jobs.Awaiting, time.Now(), time.Now() })
		w.why(a, "timed out", `No answer for key "a" came by`)
		w.modify(a, func(j *jobs.Row) { j.Deadline, j.Due = time.Time{}, time.Time{} })
		w.why(a, "answer", "without a time limit")
		w.ok(w.Withdraw(w.Context(), a))
		w.why(a, "over, over", "It has been CANCELLED since", "Its record is deleted at 2000-01-02 00:15")

		// The next admission starts it.
		w.why(big, "due", `queue "q", on node-7, may start it`)
		w.starts(l, "big")
		l.Close(w.Context())
		time.Sleep(time.Second)
		w.why(huge, "no runner", "the lease of the last one, node-7, ended at 2000-01-01 00:15:0")
	})
}

func TestExplainStrictBusyAndThrottled(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Limit: 10, Strict: true}, "n")
		w.enqueued("a", 9000)
		big, small := w.enqueued("b", 2000), w.enqueued("c", 1000)
		w.starts(l, "a")
		w.why(big, "throttled", "Its weight 2")
		if e := w.why(small, "throttled", "with a weight of 2, is before it", "strict", "limit 10, of which 9 is used"); e.Reasons[0].Job != big {
			t.Fatalf("%+v", e.Reasons)
		}
	})
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{}, "n")
		w.enqueued("a", 1000)
		second := w.enqueued("b", 1000)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		out, err := l.Next(ctx, 1)
		w.ok(err)
		if len(out) != 1 {
			t.Fatalf("%d jobs", len(out))
		}
		time.Sleep(3 * time.Second) // a leader stores its status at most once a second
		w.why(second, "busy", "all workers of queue \"q\", on n, are busy")
	})
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Throttler: queue.ThrottlerFunc(func(context.Context, *queue.Admission) error { return nil })}, "n")
		unseen := w.enqueued("a", 1000)
		w.starts(l)
		time.Sleep(3 * time.Second)
		w.why(unseen, "due")
		time.Sleep(20 * time.Second)
		w.starts(l)
		time.Sleep(10 * time.Second)
		w.why(unseen, "throttled", "has not started it; its last admission was at 2000-01-01 00:00:2")
		l.Close(w.Context())
		refuses := queue.ThrottlerFunc(func(_ context.Context, l *queue.Admission) error {
			for range l.Due() {
				continue
			}
			return nil
		})
		l = w.lead(queue.Queue{Throttler: refuses}, "m")
		w.starts(l)
		time.Sleep(3 * time.Second)
		w.why(unseen, "throttled", `The throttler of queue "q" did not start it at its last admission, at 2000-01-01 00:00:3`)
		l.Die()
		time.Sleep(time.Minute)
		w.why(unseen, "no runner", `the lease of the last one, m, ended at 2000-01-01 00:0`)
	})
}

func TestExplainTellsOfAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	id := w.create(jobs.Spec{Name: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Explain(ctx, id); !errors.Is(err, jobs.ErrUnavailable) {
		t.Fatal(err)
	}
}
