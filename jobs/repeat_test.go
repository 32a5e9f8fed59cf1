package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// until sleeps until a time of the bubble's first day, or a later time.
func until(t *testing.T, text string) {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.999999Z", "2000-01-01T"+text+"Z")
	if err != nil {
		at, err = time.Parse(time.RFC3339Nano, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(at))
}

// TestRepeatBases tests the documented example: scheduled at 1:00, started at 1:15, 30 minutes
// long.
// Promises: B49, B50, B51.
func TestRepeatBases(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		one := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
		ids := map[string]jobs.ID{}
		for base := range map[string]bool{"SCHEDULED": true, "STARTED": true, "FINISHED": true} {
			ids[base] = w.create(jobs.Spec{Name: base, FirstRun: one, Repeat: strings.ToLower(base) + ", +1 hour"})
		}
		until(w.T, "00:59:59.999999")
		for base := range ids {
			w.none(base)
		}
		until(w.T, "01:15:00")
		for base := range ids {
			w.get(base)
		}
		until(w.T, "01:45:00")
		for _, id := range ids {
			w.finish(id)
			w.state(jobs.Queued, id)
		}
		w.next(ids["SCHEDULED"], "2000-01-01T02:00:00Z")
		w.next(ids["STARTED"], "2000-01-01T02:15:00Z")
		w.next(ids["FINISHED"], "2000-01-01T02:45:00Z")
		if got := w.job(ids["STARTED"]).Repeat; got != "started, +1 hour" {
			w.Fatalf("the repeat is %q", got)
		}
	})
}

// TestRepeatKinds shows the next run of each kind of repeat.
// Promises: B57, B58, B59.
func TestRepeatKinds(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) { // 1 January 2000 is a Saturday
		until(w.T, "13:45:30.25")
		for i, c := range []struct{ repeat, next string }{
			{"HOURLY", "2000-01-01T14:45:30.25Z"},
			{"daily", "2000-01-02T13:45:30.25Z"},
			{"WEEKLY", "2000-01-08T13:45:30.25Z"},
			{"FINISHED, + 1 HOUR", "2000-01-01T14:45:30.25Z"},
			{"FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2000-01-02T04:00:00Z"},
			{"FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2000-01-03T06:00:00Z"},
			{"FINISHED, +30 DAYS, +1 MONTH", "2000-03-02T13:45:30.25Z"},
			{"FINISHED, -1 HOUR", "2000-01-01T12:45:30.25Z"},
			{"SCHEDULED, WEEKDAY 6", "2000-01-01T13:45:30.25Z"},
		} {
			name := fmt.Sprint("job", i)
			id := w.create(jobs.Spec{Name: name, Repeat: c.repeat})
			w.get(name)
			w.finish(id)
			w.next(id, c.next)
			if j := w.job(id); !j.Due.Equal(j.NextRun) || j.Run != 1 {
				w.Fatalf("%+v", j)
			}
			w.ok(w.Delete(w.Context(), id))
		}
	})
}

func TestRepeatSnaps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false, jobs.Config{Repeats: when.RepeatConfig{Snap: true}})
		until(t, "13:45:30.25")
		for repeat, next := range map[string]string{"HOURLY": "2000-01-01T14:00:00Z", "DAILY": "2000-01-02T00:00:00Z", "WEEKLY": "2000-01-02T00:00:00Z"} {
			id := w.create(jobs.Spec{Name: repeat, Repeat: repeat})
			w.get(repeat)
			w.finish(id)
			w.next(id, next)
		}
	})
}

// TestCatchingUp shows that SCHEDULED makes up for missed runs, and that Reanchor skips them for
// short intervals.
// Promises: B56.
func TestCatchingUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Repeat: "SCHEDULED, +1 HOUR"})
		until(w.T, "03:30:00")
		for hour := range 4 {
			if h := w.get("a"); h.Scheduled.Hour() != hour || h.Run != int64(hour+1) {
				w.Fatalf("%+v", h)
			}
			w.finish(id)
		}
		w.none("a")
		w.next(id, "2000-01-01T04:00:00Z")
	})
	for _, c := range []struct{ repeat, next string }{
		{"SCHEDULED, +1 HOUR", "2000-01-02T01:00:00Z"},
		{"SCHEDULED, +7 MINUTES", "2000-01-02T00:02:00Z"},
		{"SCHEDULED, +1 HOUR, -20 MINUTES", "2000-01-02T00:40:00Z"},
		{"SCHEDULED, +4 HOURS", "2000-01-01T04:00:00Z"},
		{"SCHEDULED, +1 HOUR, START OF HOUR", "2000-01-01T01:00:00Z"},
		{"SCHEDULED, -1 HOUR", "1999-12-31T23:00:00Z"},
		{"STARTED, -1 MINUTE", "2000-01-02T00:00:59Z"},
	} {
		t.Run(c.repeat, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, false, jobs.Config{Reanchor: true})
				id := w.create(jobs.Spec{Name: "a", Repeat: c.repeat})
				until(t, "2000-01-02T00:01:59Z")
				w.get("a")
				w.finish(id)
				w.next(id, c.next)
			})
		})
	}
}

// TestRepeatsThatEnd shows that a job fails when its repeat leads out of the valid years.
func TestRepeatsThatEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		far := "SCHEDULED" + strings.Repeat(", +999 YEARS", 9)
		id := w.create(jobs.Spec{Name: "a", Repeat: far})
		p := w.create(jobs.Spec{Name: "p"})
		w.get("p")
		child := w.create(jobs.Spec{Name: "c", Parent: p, Repeat: far})
		w.finish(p)
		w.get("a")
		w.get("c")
		w.ok(w.Finish(ctx, jobs.Finish{ID: id, Data: []byte(`{"x":1}`)}))
		w.ok(w.Retry(ctx, jobs.Retry{ID: child}))
		w.state(jobs.Failed, id, child)
		w.state(jobs.Queued, p)
		w.data(id, `{"x":1}`)
		if j := w.job(id); !strings.Contains(j.Reason, "years 0000 to 9999") || !j.Due.IsZero() {
			w.Fatalf("%+v", j)
		}
		if s := w.Stats(); s.Failed != 2 || s.Finished != 1 || s.Retried != 0 {
			w.Fatalf("%+v", s)
		}
		w.bad(w.Update(ctx, jobs.Update{ID: p, Data: []byte("{}"), Repeat: task.Set(far)}), "repeat")

		// The last valid day.
		id = w.create(jobs.Spec{Name: "z", Repeat: "FINISHED" + strings.Repeat(", +999 YEARS", 8) + ", +7 YEARS, +11 MONTHS, +30 DAYS"})
		w.get("z")
		time.Sleep(time.Microsecond)
		w.finish(id)
		w.next(id, "9999-12-31T00:00:00.000001Z")
	})
}

func TestEndOfRepeating(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		for _, data := range []string{`{"delete":"true"}`, `{"x":1, "delete" : true}`} {
			id := w.create(jobs.Spec{Name: "a", Repeat: "HOURLY"})
			w.get("a")
			w.ok(w.Finish(ctx, jobs.Finish{ID: id, Data: []byte(data)}))
			w.state("", id)
		}
		for _, data := range []string{`{"delete":"false"}`, `{"delete":1}`, `{"x":{"delete":true}}`, `{"x":"delete"}`, `{"delete":true,"delete":false}`} {
			// its stored data do not end it
			id := w.create(jobs.Spec{Name: "a", Repeat: "HOURLY", Data: []byte(`{"delete":"true"}`)})
			w.get("a")
			w.ok(w.Finish(ctx, jobs.Finish{ID: id, Data: []byte(data)}))
			w.state(jobs.Queued, id)
			w.data(id, data)
			w.ok(w.Delete(ctx, id))
		}
	})
}

// TestUpdate shows how Update changes the next run.
// Promises: B11.
func TestUpdate(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		id := w.create(jobs.Spec{Name: "a", FirstRun: time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)})
		set := func(u jobs.Update, next string) {
			w.Helper()
			u.ID = id
			if u.Data == nil {
				u.Data = []byte(`{"u":1}`)
			}
			w.ok(w.Update(ctx, u))
			w.next(id, next)
			w.dueFits(w.job(id))
		}
		until(w.T, "12:00:00")
		set(jobs.Update{}, "2000-01-02T00:00:00Z")
		set(jobs.Update{Repeat: task.Set("SCHEDULED, +1 HOUR")}, "2000-01-02T01:00:00Z")
		// it never ran: from now
		set(jobs.Update{Repeat: task.Set("STARTED, +1 HOUR")}, "2000-01-01T13:00:00Z")
		set(jobs.Update{Repeat: task.Set("FINISHED, +2 HOURS")}, "2000-01-01T14:00:00Z")
		set(jobs.Update{Repeat: task.Set("FINISHED, +3 HOURS"), NextRun: time.Date(2000, 1, 1, 13, 0, 0, 1, time.UTC)}, "2000-01-01T13:00:00.000001Z")
		set(jobs.Update{Repeat: task.Set("")}, "2000-01-01T13:00:00.000001Z")
		if got := w.job(id).Repeat; got != "" {
			w.Fatalf("it repeats: %q", got)
		}
		until(w.T, "15:00:00")
		w.get("a")
		until(w.T, "16:00:00")
		set(jobs.Update{Repeat: task.Set("SCHEDULED, +5 HOURS")}, "2000-01-01T18:00:00.000001Z")
		set(jobs.Update{Repeat: task.Set("STARTED, +5 HOURS"), Priority: task.Set(9), Data: []byte(`{"v": 2}`)}, "2000-01-01T20:00:00Z")
		if j := w.job(id); j.Priority != 9 || string(j.Data) != `{"v": 2}` || j.State != jobs.Running || !j.Due.IsZero() {
			w.Fatalf("%+v", j)
		}
		w.finish(id)
		w.next(id, "2000-01-01T20:00:00Z")

		w.bad(w.Update(ctx, jobs.Update{ID: id}), "data")
		w.bad(w.Update(ctx, jobs.Update{ID: id, Data: []byte("")}), "data")
		w.bad(w.Update(ctx, jobs.Update{ID: id, Data: []byte("{}"), Repeat: task.Set("never")}), "repeat")
		w.bad(w.Update(ctx, jobs.Update{ID: id, Data: []byte("{}"), Priority: task.Set(-1 << 40)}), "jobPriority")
		w.bad(w.Update(ctx, jobs.Update{ID: id, Data: []byte("{}"), NextRun: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}), "nextRun")
	})
}
