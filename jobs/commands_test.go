package jobs_test

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

var allStates = []jobs.State{
	jobs.Queued, jobs.RunQueued, jobs.Running, jobs.Paused, jobs.Waiting, jobs.Finished, jobs.Failed, jobs.Cancelled,
}

// bring creates a job named "it" in the given state.
func (w *world) bring(state jobs.State) jobs.ID {
	w.Helper()
	switch state {
	case jobs.Queued:
		return w.create(jobs.Spec{Name: "it"})
	case jobs.Running:
		id := w.create(jobs.Spec{Name: "it"})
		w.get("it")
		return id
	case jobs.RunQueued:
		id := w.create(jobs.Spec{Name: "it", RetryAfter: "+5 MINUTES"})
		w.get("it")
		return id
	case jobs.Paused:
		id := w.create(jobs.Spec{Name: "it"})
		w.get("it")
		w.create(jobs.Spec{Name: "child", Parent: id})
		w.finish(id)
		return id
	case jobs.Waiting:
		w.create(jobs.Spec{Name: "first", SequenceKey: "k"})
		return w.create(jobs.Spec{Name: "it", SequenceKey: "k"})
	case jobs.Failed:
		id := w.create(jobs.Spec{Name: "it"})
		w.get("it")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: id}))
		return id
	default: // a child that is over, while its sibling is not
		parent := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		id := w.create(jobs.Spec{Name: "it", Parent: parent})
		w.create(jobs.Spec{Name: "other", Parent: parent})
		w.finish(parent)
		if state == jobs.Cancelled {
			w.ok(w.Cancel(w.Context(), id))
			return id
		}
		w.get("it")
		w.finish(id)
		return id
	}
}

// TestWhoMayDoWhat calls every command on a job in every state. "" means that the job is deleted.
// Promises: Q10.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	type outcome struct {
		state jobs.State // after the call, if it returns no error
		err   error
	}
	same := jobs.State("same")
	each := func(o outcome) map[jobs.State]outcome {
		all := map[jobs.State]outcome{}
		for _, s := range allStates {
			all[s] = o
		}
		return all
	}
	but := func(all map[jobs.State]outcome, o outcome, states ...jobs.State) map[jobs.State]outcome {
		for _, s := range states {
			all[s] = o
		}
		return all
	}
	for _, c := range []struct {
		name string
		do   func(w *world, id jobs.ID) error
		want map[jobs.State]outcome
	}{
		{
			"finish", func(w *world, id jobs.ID) error { return w.Finish(w.Context(), jobs.Finish{ID: id}) },
			but(each(outcome{err: jobs.ErrNotRunning}), outcome{state: ""}, jobs.Running, jobs.RunQueued),
		},
		{
			"finish a run", func(w *world, id jobs.ID) error { return w.Finish(w.Context(), jobs.Finish{ID: id, Token: 1}) },
			but(each(outcome{err: jobs.ErrStale}), outcome{state: ""}, jobs.Running, jobs.RunQueued),
		},
		{
			"retry", func(w *world, id jobs.ID) error { return w.Retry(w.Context(), jobs.Retry{ID: id}) },
			but(each(outcome{err: jobs.ErrNotRunning}), outcome{state: jobs.Queued}, jobs.Running, jobs.RunQueued),
		},
		{
			"fail", func(w *world, id jobs.ID) error { return w.Fail(w.Context(), jobs.Fail{ID: id}) },
			but(each(outcome{err: jobs.ErrNotRunning}), outcome{state: jobs.Failed}, jobs.Running, jobs.RunQueued),
		},
		{
			"delete", func(w *world, id jobs.ID) error { return w.Delete(w.Context(), id) },
			but(but(each(outcome{state: ""}), outcome{err: jobs.ErrIsRunning}, jobs.Running, jobs.RunQueued), outcome{err: jobs.ErrChildrenRunning}, jobs.Paused),
		},
		{
			"cancel", func(w *world, id jobs.ID) error { return w.Cancel(w.Context(), id) },
			but(but(each(outcome{err: jobs.ErrNoParent}), outcome{state: same}, jobs.Finished, jobs.Cancelled), outcome{err: jobs.ErrHasChildren}, jobs.Paused),
		},
		{
			"requeue", func(w *world, id jobs.ID) error { return w.Requeue(w.Context(), []jobs.ID{id}, "") },
			but(each(outcome{state: jobs.Queued}), outcome{state: jobs.Waiting}, jobs.Waiting),
		},
		{
			"update", func(w *world, id jobs.ID) error {
				return w.Update(w.Context(), jobs.Update{ID: id, Data: []byte(`{"new":1}`), Priority: task.Set(7)})
			},
			each(outcome{state: same}),
		},
		{
			"renew", func(w *world, id jobs.ID) error { return w.Renew(w.Context(), id, 1, time.Minute) },
			but(each(outcome{err: jobs.ErrStale}), outcome{state: same}, jobs.Running, jobs.RunQueued),
		},
		{
			"get", func(w *world, id jobs.ID) error {
				_, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Pattern: "it"}})
				return err
			},
			but(each(outcome{err: jobs.ErrNoJob}), outcome{state: jobs.Running}, jobs.Queued),
		},
		{
			"make a child of", func(w *world, id jobs.ID) error {
				_, err := w.Create(w.Context(), jobs.Spec{Name: "child", Parent: id})
				return err
			},
			but(each(outcome{err: jobs.ErrParentState}), outcome{state: same}, jobs.Running, jobs.RunQueued, jobs.Paused),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range allStates {
				t.Run(string(s), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(w *world) {
						id := w.bring(s)
						w.state(s, id)
						want := c.want[s]
						if err := c.do(w, id); want.err != nil {
							w.is(err, want.err)
							want.state = same
						} else {
							w.ok(err)
						}
						if want.state == same {
							want.state = s
						}
						w.state(want.state, id)
						if want.state != "" {
							w.dueFits(w.job(id))
						}
					})
				})
			}
		})
	}
}

// dueFits checks that Due matches the state of the job.
func (w *world) dueFits(j jobs.Row) {
	w.Helper()
	switch j.State {
	case jobs.Queued, jobs.RunQueued:
		if !j.Due.Equal(j.NextRun) {
			w.Fatalf("due at %s, next run at %s", j.Due, j.NextRun)
		}
	case jobs.Running:
	default:
		if !j.Due.IsZero() {
			w.Fatalf("one that is %s is due at %s", j.State, j.Due)
		}
	}
}

// TestNoSuchJob calls every command with an id that does not exist.
func TestNoSuchJob(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		ctx := w.Context()
		w.is(w.Finish(ctx, jobs.Finish{ID: 9}), jobs.ErrNotFound)
		w.is(w.Finish(ctx, jobs.Finish{ID: -9, Token: 1}), jobs.ErrNotFound)
		w.is(w.Retry(ctx, jobs.Retry{ID: 9}), jobs.ErrNotFound)
		w.is(w.Fail(ctx, jobs.Fail{ID: 9}), jobs.ErrNotFound)
		w.is(w.Delete(ctx, 9), jobs.ErrNotFound)
		w.is(w.Cancel(ctx, 9), jobs.ErrNotFound)
		w.is(w.Renew(ctx, 9, 1, time.Second), jobs.ErrNotFound)
		w.is(w.GiveBack(ctx, jobs.Handout{Row: jobs.Row{Job: jobs.Job{ID: 9}, Token: 1}}), jobs.ErrNotFound)
		w.is(w.Update(ctx, jobs.Update{ID: 9, Data: []byte("{}")}), jobs.ErrNotFound)
		w.is(w.Requeue(ctx, []jobs.ID{8, 9}, ""), jobs.ErrNotFound)
		_, err := w.Query(ctx, 9)
		w.is(err, jobs.ErrNotFound)
		_, err = w.Create(ctx, jobs.Spec{Name: "x", Parent: 9})
		w.is(err, jobs.ErrParentNotFound)
	})
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, s := range allStates {
		if got, want := s.Active(), s == jobs.Queued || s == jobs.RunQueued || s == jobs.Running; got != want {
			t.Errorf("%s is active: %v", s, got)
		}
		if got, want := s.Runs(), s == jobs.RunQueued || s == jobs.Running; got != want {
			t.Errorf("%s runs: %v", s, got)
		}
	}
}

// TestRetry shows when a job runs again after Retry.
// Promises: B13.
func TestRetry(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		start := time.Now().UTC()
		id := w.create(jobs.Spec{Name: "a", Data: []byte(`{"n":1}`)})
		again := func(r jobs.Retry, name, want string) {
			w.Helper()
			r.ID = id
			w.get(name)
			w.ok(w.Retry(w.Context(), r))
			w.state(jobs.Queued, id)
			if got := w.job(id).NextRun.Sub(start).String(); got != want {
				w.Fatalf("%+v: next after %s, want %s", r, got, want)
			}
		}
		again(jobs.Retry{}, "a", "0s")
		again(jobs.Retry{Delay: time.Minute}, "a", "1m0s")
		w.none("a")
		time.Sleep(time.Minute - time.Microsecond)
		w.none("a")
		time.Sleep(time.Microsecond)
		again(jobs.Retry{Delay: time.Hour, NextRun: start.Add(90*time.Second + time.Nanosecond)}, "a", "1m30.000001s")
		time.Sleep(time.Hour)
		again(jobs.Retry{Name: "b", Data: []byte(`{"n":2}`), Priority: task.Set(3), Delay: time.Nanosecond}, "a", "1h1m0.000001s")
		time.Sleep(time.Second)
		w.none("a")
		if j := w.job(id); j.Name != "b" || string(j.Data) != `{"n":2}` || j.Priority != 3 || j.Run != 4 {
			w.Fatalf("%+v", j)
		}
		w.ok(w.Update(w.Context(), jobs.Update{ID: id, Data: []byte("{}"), Repeat: task.Set("STARTED, +2 HOURS"), NextRun: start}))
		again(jobs.Retry{Delay: time.Second, NextRun: start}, "b", "3h1m1s")
		time.Sleep(4 * time.Hour)
		again(jobs.Retry{IgnoreRepeat: true, Delay: time.Second}, "b", "5h1m2s")

		for field, r := range map[string]jobs.Retry{
			"data": {Data: []byte("7")}, "name": {Name: string(make([]byte, 300))}, "jobPriority": {Priority: task.Set(1 << 30)}, "delay": {Delay: -1},
			"nextRun": {NextRun: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		} {
			r.ID = id
			w.bad(w.Retry(w.Context(), r), field)
		}
	})
}

// TestRequeue shows that Requeue makes jobs due at the time of their creation.
// Promises: B17.
func TestRequeue(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		start := w.job(w.create(jobs.Spec{Name: "a"})).Created
		w.create(jobs.Spec{Name: "a", FirstRun: time.Now().Add(time.Hour)})
		w.get("a")
		time.Sleep(2 * time.Hour)
		h := w.get("a")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: h.ID, Reason: "no"}))
		if got := w.job(h.ID).Reason; got != "no" {
			w.Fatal(got)
		}
		w.ok(w.Requeue(w.Context(), []jobs.ID{1, 2, 77}, "b"))
		for _, id := range []jobs.ID{1, 2} {
			j := w.job(id)
			if j.State != jobs.Queued || j.Name != "b" || !j.NextRun.Equal(start) || j.Reason != "" {
				w.Fatalf("%+v", j)
			}
		}
		w.is(w.Finish(w.Context(), jobs.Finish{ID: 1, Token: 1}), jobs.ErrStale)
		w.bad(w.Requeue(w.Context(), nil, ""), "jobIDs")
		w.bad(w.Requeue(w.Context(), []jobs.ID{1}, "\x00"), "name")
		if got := w.Stats().Requeued; got != 2 {
			w.Fatal(got)
		}
	})
}

// TestRequeueRepeats shows that a requeued job that repeats runs once for the time of its last run,
// and then at its following times. The runs before are not repeated.
func TestRequeueRepeats(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Repeat: "SCHEDULED, +1 MINUTE"})
		first := w.job(id).NextRun
		for range 10 {
			w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Token: w.get("a").Token}))
			time.Sleep(time.Minute)
		}
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: w.get("a").ID, Reason: "no"}))
		w.ok(w.Requeue(w.Context(), []jobs.ID{id}, ""))
		if got, want := w.job(id).NextRun, first.Add(10*time.Minute); !got.Equal(want) {
			w.Fatalf("NextRun of the failed job is %v, want %v", got, want)
		}
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Token: w.get("a").Token}))
		if got, want := w.job(id).NextRun, first.Add(11*time.Minute); !got.Equal(want) {
			w.Fatalf("NextRun after the run is %v, want %v", got, want)
		}
		w.ok(w.Requeue(w.Context(), []jobs.ID{id}, "")) // a job that waits for its next time: run it now
		if got, want := w.job(id).NextRun, first.Add(10*time.Minute); !got.Equal(want) {
			w.Fatalf("NextRun of the waiting job is %v, want %v", got, want)
		}
	})
}
