package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestWindowsMinuteByMinute runs jobs with windows for a week around changes of the clock, with
// failures. It compares each start with a search minute by minute in local time.
func TestWindowsMinuteByMinute(t *testing.T) {
	t.Parallel()
	for _, at := range []struct{ zone, from string }{
		{"Europe/Berlin", "2026-03-26"}, // the 29th has 23 hours
		{"Europe/Berlin", "2026-10-22"}, // the 25th has 25 hours
		{"America/New_York", "2026-03-05"},
		{"America/New_York", "2026-10-29"},
	} {
		t.Run(at.zone+" "+at.from, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(at.zone)
			if err != nil {
				t.Fatal(err)
			}
			from, err := time.ParseInLocation(time.DateOnly, at.from, loc)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(from))
				walkWindows(t, loc)
			})
		})
	}
}

// windowsOfTheWalk contains windows as text and as spans of the day in minutes.
var windowsOfTheWalk = []struct {
	text  string
	spans [][2]int
}{
	{"09:00-17:00", [][2]int{{540, 1020}}},
	{"22:00-06:00", [][2]int{{1320, 1440}, {0, 360}}},
	// the hour that is missing on one day and repeated on another
	{"02:00-03:00", [][2]int{{120, 180}}},
	{"02:30-02:45, 12:00-12:01", [][2]int{{150, 165}, {720, 721}}},
	{"00:00-01:00, 00:30-02:15, 23:59-24:00", [][2]int{{0, 135}, {1439, 1440}}},
	{"07:00-07:00", [][2]int{{0, 1440}}},
}

// openAt reports whether the windows are open at t in local time.
func openAt(spans [][2]int, t time.Time) bool {
	minute := t.Hour()*60 + t.Minute()
	return slices.ContainsFunc(spans, func(s [2]int) bool { return s[0] <= minute && minute < s[1] })
}

// firstOpen returns the first open minute at or after t.
func firstOpen(spans [][2]int, t time.Time) time.Time {
	for !openAt(spans, t) {
		t = t.Truncate(time.Minute).Add(time.Minute) // offsets from UTC are whole minutes
	}
	return t
}

// walkWindows starts each job repeatedly for nine days. A job fails 50 minutes after each start and
// is due again 77 minutes later.
func walkWindows(t *testing.T, loc *time.Location) {
	w := newWorld(t, false, jobs.Config{})
	l := w.lead(jobs.Queue{Limit: 100, Poll: time.Hour}, "n")
	end := time.Now().Add(9 * 24 * time.Hour)
	want := map[jobs.ID]time.Time{}
	spans := map[jobs.ID][][2]int{}
	for i, win := range windowsOfTheWalk {
		for k := range 3 {
			first := time.Now().Add(time.Duration(i*3+k) * 97 * time.Minute).In(loc)
			id := w.create(jobs.Spec{
				Name: fmt.Sprint(win.text, " ", k), Queue: "q", FirstRun: first, Windows: mustWindows(t, win.text, loc), Timeout: task.Set(time.Duration(0)),
			})
			want[id], spans[id] = firstOpen(win.spans, first), win.spans
		}
	}
	starts := 0
	for {
		ctx, cancel := context.WithDeadline(w.Context(), end)
		out, err := l.Next(ctx, 100)
		cancel()
		if err != nil {
			break
		}
		for i := range out {
			h := &out[i]
			now := time.Now().In(loc)
			if late := now.Sub(want[h.ID]); late < 0 || late > time.Second {
				t.Fatalf("%s was started at %v, not at %v", h.Name, now, want[h.ID].In(loc))
			}
			again := now.Add(127 * time.Minute)
			w.ok(w.Retry(w.Context(), jobs.Retry{ID: h.ID, Token: h.Token, NextRun: again}))
			want[h.ID] = firstOpen(spans[h.ID], again)
			starts++
		}
	}
	if starts < 9*len(want) {
		t.Fatalf("only %d starts", starts)
	}
	for id, at := range want {
		if at.Before(end.Add(-time.Second)) {
			t.Fatalf("job %d was to start at %v, and did not", id, at.In(loc))
		}
	}
	if strings.Count(w.job(1).Window, "/") != 1 {
		t.Fatalf("the zone is not kept: %q", w.job(1).Window)
	}
}

// TestWindowThatClosesWhileItWaits shows a job that waits for the limit until its window has
// closed.
// Promises: Q31.
func TestWindowThatClosesWhileItWaits(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(jobs.Queue{Limit: 1}, "n")
		first := w.create(jobs.Spec{Name: "first", Queue: "q", Timeout: task.Set(time.Duration(0))})
		waits := w.create(jobs.Spec{Name: "waits", Queue: "q", Windows: mustWindows(t, "00:00-01:00", time.UTC), Timeout: task.Set(time.Duration(0))})
		w.starts(l, "first")
		w.modify(first, func(j *jobs.Row) { j.Due = time.Time{} })
		if got := w.first(l, 2*time.Hour); len(got) > 0 {
			t.Fatalf("%v", namesOf(got))
		}
		w.next(waits, "2000-01-01T00:00:00Z") // no admission has moved it yet
		w.over(first)
		w.starts(l)
		w.next(waits, "2000-01-02T00:00:00Z")
		if j := w.job(waits); j.Attempt != 0 || j.Run != 0 {
			t.Fatalf("%+v", j)
		}
		if got := w.first(l, 24*time.Hour); !slices.Equal(namesOf(got), []string{"waits"}) || time.Now().UTC().Hour() != 0 {
			t.Fatalf("%v at %v", namesOf(got), time.Now().UTC())
		}
	})
}
