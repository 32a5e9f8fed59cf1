package jobs_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

func TestCommonLife(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "mail", Data: []byte(` {"to": "x"} `)})
		if id != 1 {
			w.Fatalf("the first job is %d", id)
		}
		j := w.job(id)
		if j.State != jobs.Queued || j.Priority != jobs.DefaultPriority || string(j.Data) != `{"to": "x"}` || !j.NextRun.Equal(j.Created) || !j.LastRun.IsZero() {
			w.Fatalf("%+v", j)
		}
		w.none("post")
		time.Sleep(time.Minute)
		h := w.get("mail")
		if h.ID != id || h.State != jobs.Running || h.Run != 1 || h.Token != 1 || !h.LastRun.Equal(h.NextRun.Add(time.Minute)) || !h.Scheduled.Equal(h.NextRun) || !h.Due.IsZero() {
			w.Fatalf("%+v", h)
		}
		w.none("mail")
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Token: 2}), jobs.ErrStale)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Data: []byte("[]")}), jobs.ErrBadJob)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Token: 1, Data: []byte(`{"done":true}`)}), nil)
		w.state("", id)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Token: 1}), jobs.ErrNotFound)
		s := w.Stats()
		if s.Created != 1 || s.Taken != 1 || s.Finished != 1 || s.Stale != 1 {
			w.Fatalf("%+v", s)
		}
	})
}

// A job is only postponed while it runs, also without a token: it would run before its turn, or
// again after its end.
func TestPostponeNeedsAnAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "mail"})
		w.is(w.Postpone(w.Context(), id, 0, time.Minute, nil, true), jobs.ErrNotRunning)
		w.state(jobs.Queued, id)
		w.get("mail")
		w.is(w.Postpone(w.Context(), id, 0, time.Minute, nil, true), nil)
		w.state(jobs.RunQueued, id)
	})
}
