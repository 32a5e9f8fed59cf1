package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
)

// standBy calls Next of a leader in a goroutine. The channel receives the time at which Next
// returns.
func (w *world) standBy(l *leader) chan time.Time {
	at := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	w.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		if _, err := l.Next(ctx, 10); err == nil {
			at <- time.Now()
		}
	}()
	return at
}

func TestStandbyTakesOverAtOnceAfterClose(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		first, second := w.lead(queue.Queue{}, "first"), w.lead(queue.Queue{}, "second")
		w.over(w.enqueued("a", 0))
		w.starts(first)
		got := w.standBy(second)
		time.Sleep(time.Hour) // the lease is renewed
		w.enqueued("b", 0)
		w.starts(first, "b")
		if second.Fence() != 0 {
			t.Fatal("two have the lease")
		}
		w.enqueued("c", 0)
		closed := time.Now()
		first.Close(w.Context())
		if took := (<-got).Sub(closed); took > 100*time.Millisecond {
			t.Fatalf("the other one took over after %v", took)
		}
		if _, err := first.Next(w.Context(), 1); !errors.Is(err, jobs.ErrClosed) {
			t.Fatalf("next after close: %v", err)
		}
	})
}

// TestKeepBeginsLate shows that a leader whose KeepLease starts after Next receives earlier
// notifications at once.
func TestKeepBeginsLate(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l, err := w.NewLeader(queue.LeaderConfig{
			Queue: queue.Queue{Name: "q", Poll: time.Hour}, Lease: 30 * time.Second, Report: func(err error) { w.Errorf("reported: %v", err) },
		})
		w.ok(err)
		got := w.standBy(&leader{Leader: l})
		synctest.Wait()
		w.enqueued("a", 0)
		began := time.Now()
		kept := keep(l)
		if took := (<-got).Sub(began); took > time.Second {
			t.Errorf("the job is handed out after %v", took)
		}
		kept.Close(w.Context())
	})
}

func TestStandbyTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		first, second := w.lead(queue.Queue{}, "first"), w.lead(queue.Queue{}, "second")
		w.starts(first)
		got := w.standBy(second)
		synctest.Wait()
		first.Die()
		died := time.Now()
		w.enqueued("b", 0)
		if took := (<-got).Sub(died); took < 15*time.Second || took > 31*time.Second {
			t.Fatalf("taken over after %v", took)
		}
		// The former leader continues late.
		w.enqueued("c", 0)
		if got := w.now(first); len(got) > 0 || first.Fence() != 0 {
			t.Fatalf("%d jobs were started under a lease that another has", len(got))
		}
		w.starts(second, "c")
	})
}

// TestFrozenLeaderStartsNothing shows that a leader that has lost its lease starts no job.
// Promises: Q39.
func TestFrozenLeaderStartsNothing(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		var second *leader
		freeze := false
		slow := queue.ThrottlerFunc(func(_ context.Context, l *queue.Admission) error {
			for j := range l.Due() {
				l.Start(j)
			}
			if freeze { // the process stops after the decision, and another one takes the lease
				freeze = false
				time.Sleep(time.Minute)
				w.starts(second, "a")
			}
			return nil
		})
		first := w.lead(queue.Queue{Limit: 1, Throttler: slow}, "first")
		second = w.lead(queue.Queue{Limit: 1}, "second")
		w.starts(first)
		first.Die()
		w.enqueued("a", 1000)
		w.enqueued("b", 1000)
		freeze = true
		w.starts(first)
		if n, _ := w.runningIn("q"); n != 1 {
			t.Fatalf("%d run of a limit of 1", n)
		}
	})
}

// runningIn returns the number of running jobs of a queue and the sum of their weights.
func (w *world) runningIn(named string) (n, weight int64) {
	w.Helper()
	found, err := w.List(w.Context(), jobs.Filter{Queue: named, States: []jobs.State{jobs.Running}})
	w.ok(err)
	for _, j := range found {
		n, weight = n+1, weight+j.Weight
	}
	return n, weight
}

// TestStartedJob shows the fields of a job after its start.
// Promises: Q38, Q10.
func TestStartedJob(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		broken := errors.New("broken")
		begin := func(j *jobs.Row) error {
			switch j.Name {
			case "bad":
				return broken
			case "panics":
				panic("oh")
			case "keyed", "same":
				j.Key, j.Respond = "k", true
			}
			return nil
		}
		l := w.leadWith(queue.Queue{}, "n", begin, func(err error) { t.Error(err) })
		due := time.Now().Add(-time.Minute).UTC()
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "keyed", Weight: 500, Timeout: time.Hour, NextRun: due, Attempt: 2, Reason: "it was", Answer: []byte("1")}, Run: 3, Token: 5})
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "bad", Timeout: 10 * time.Second, Key: "old"}})
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "panics"}})
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "same"}})
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "same"}})
		out := w.now(l)
		if len(out) != 5 {
			t.Fatalf("%d jobs", len(out))
		}
		now := time.Now().UTC().Add(-time.Second) // now() waits for further jobs
		h := out[0]
		want := h.Row
		want.State, want.Run, want.Token, want.Attempt, want.Reason, want.Answer = jobs.Running, 4, 6, 3, "", nil
		want.Scheduled, want.NextRun, want.LastRun, want.Due, want.Deadline = due, due, now, now.Add(30*time.Second), now.Add(time.Hour)
		want.Key, want.Respond = "k", true
		if diff := diffJobs(want, h.Row); diff != "" {
			t.Fatal(diff)
		}
		for i := range out {
			if diff := diffJobs(out[i].Row, w.job(out[i].ID)); diff != "" {
				t.Fatalf("what was handed out is not what is kept: %s", diff)
			}
		}
		if bad := out[1]; !errors.Is(bad.Refused, broken) || bad.Key != "old" || bad.Attempt != 1 || !bad.Due.Equal(now.Add(10*time.Second)) {
			t.Fatalf("bad: %v, %+v", bad.Refused, bad.Job)
		}
		if out[2].Refused == nil || out[3].Refused != nil {
			t.Fatalf("%v, %v", out[2].Refused, out[3].Refused)
		}
		var taken *jobs.KeyTakenError
		if err := out[4].Refused; !errors.As(err, &taken) || taken.Job != out[3].ID || out[4].Key != "" {
			t.Fatalf("a second job of a key: %v", err)
		}
	})
}

// TestRunningJobsComeBack shows when a running job is claimed again.
// Promises: Q11.
func TestRunningJobsComeBack(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Limit: 1}, "n")
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "a", Weight: 1000, Timeout: time.Hour}})
		first := w.starts(l, "a")[0]
		began := time.Now()

		// Its runner dies: the request is repeated in the same attempt.
		again := w.first(l, 40*time.Second)
		if len(again) != 1 || again[0].Token != first.Token+1 || again[0].Run != first.Run || again[0].Attempt != 1 || again[0].Phase != "" ||
			!again[0].Deadline.Equal(first.Deadline) {
			t.Fatalf("after the lease: %+v", again)
		}
		if at := again[0].LastRun.Sub(began.UTC()); at < 28*time.Second || at > 31*time.Second {
			t.Fatalf("the lease ended after %v", at)
		}
		// Its answer comes and must be handled.
		w.modify(first.ID, func(j *jobs.Row) { j.Phase, j.Answer, j.Due = jobs.Answered, []byte("7"), time.Now() })
		w.now(l)
		w.modify(first.ID, func(j *jobs.Row) { j.Phase, j.Due = jobs.Answered, time.Now() })
		answered := w.starts(l, "a")[0]
		if answered.Phase != jobs.Answered || string(answered.Answer) != "7" || !answered.LastRun.Equal(again[0].LastRun) {
			t.Fatalf("answered: %+v", answered.Job)
		}
		// It awaits another answer, which never comes.
		w.modify(first.ID, func(j *jobs.Row) { j.Phase, j.Answer, j.Due = jobs.Awaiting, nil, j.Deadline })
		if got := w.first(l, 30*time.Minute); len(got) > 0 {
			t.Fatalf("%+v before the deadline", got)
		}
		late := w.first(l, 30*time.Minute)
		if len(late) == 0 || late[0].Phase != jobs.Awaiting || late[0].Attempt != 1 || !late[0].Due.After(late[0].Deadline) {
			t.Fatalf("after the deadline: %+v", late)
		}
	})
}

// TestRequestThatNobodyMadeTimesOut shows that an attempt times out although its request was never
// sent.
// Promises: Q11.
func TestRequestThatNobodyMadeTimesOut(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "a", Timeout: time.Hour}})
		first := w.lead(queue.Queue{}, "n")
		w.starts(first, "a")
		first.Close(w.Context())
		time.Sleep(2 * time.Hour)
		late := w.starts(w.lead(queue.Queue{}, "m"), "a")
		if late[0].Phase != jobs.Awaiting || w.job(late[0].ID).Phase != jobs.Awaiting {
			t.Fatalf("%+v", late[0].Job)
		}
	})
}

func TestRoomIsKept(t *testing.T) {
	t.Parallel()
	for _, th := range []queue.Throttler{nil, queue.Shares(shareOf, nil)} {
		inQueue(t, func(w *world) {
			const all = 1200 // more than the largest page
			l := w.lead(queue.Queue{Throttler: th}, "n")
			for range all {
				w.enqueued("a", 1000)
			}
			total := 0
			for total < all {
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				got, err := l.Next(ctx, 7)
				cancel()
				if err != nil || len(got) > 7 || len(got) < 7 && total+len(got) < all {
					t.Fatalf("%d jobs, %v", len(got), err)
				}
				total += len(got)
			}
		})
	}
}

func TestServiceClosedEndsNext(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{}, "n")
		got := make(chan error, 1)
		go func() {
			_, err := l.Next(w.Context(), 1)
			got <- err
		}()
		time.Sleep(time.Minute)
		w.ok(w.Close(w.Context()))
		w.is(<-got, jobs.ErrClosed)
	})
}

func TestIdleQueueStartsAtOnce(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		l := w.lead(queue.Queue{Poll: time.Hour}, "n")
		got := w.standBy(l)
		time.Sleep(10*time.Minute + 300*time.Millisecond)
		made := time.Now()
		a := w.enqueued("a", 1000)
		if took := (<-got).Sub(made); took > 10*time.Millisecond {
			t.Fatalf("it was started after %v", took)
		}
		w.over(a)
		// A later job starts when it is due, without a poll.
		at := time.Now().Add(20 * time.Minute)
		w.enqueue(jobs.Row{Job: jobs.Job{Name: "b", NextRun: at}})
		got = w.standBy(l)
		if late := (<-got).Sub(at); late < 0 || late > 10*time.Millisecond {
			t.Fatalf("it was started %v after its time", late)
		}
	})
}

// TestLeadChecksItsConfig shows that Lead refuses an invalid configuration, such as a Lease of 0.
func TestLeadChecksItsConfig(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		report := func(error) {}
		for want, c := range map[string]queue.LeaderConfig{
			"Queue.Limit":          {Queue: queue.Queue{Name: "q", Limit: -1}, Lease: time.Second, Report: report},
			"LeaderConfig.Lease":   {Queue: queue.Queue{Name: "q"}, Report: report},
			"Lease is -1s":         {Queue: queue.Queue{Name: "q"}, Lease: -time.Second, Report: report},
			"LeaderConfig.Report ": {Queue: queue.Queue{Name: "q"}, Lease: time.Second},
		} {
			if _, err := w.NewLeader(c); err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("want an error that says %q, got %v", want, err)
			}
		}
	})
}
