package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// admit starts a job of a queue, as the queue's leader does.
func (w *world) admit(id jobs.ID, lease time.Duration) jobs.Row {
	w.Helper()
	return admit(w.Context(), w.T, w.store, id, lease)
}

func admit(ctx context.Context, t testing.TB, store jobs.Store, id jobs.ID, lease time.Duration) (j jobs.Row) {
	t.Helper()
	err := store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if j, err = tx.Get(ctx, id); err != nil {
			return err
		}
		j.State, j.Changed, j.LastRun, j.Scheduled = jobs.Running, now, now, j.NextRun
		j.Run, j.Token, j.Attempt = j.Run+1, j.Token+1, j.Attempt+1
		j.Due, j.Deadline, j.Reason, j.Answer = now.Add(lease), time.Time{}, "", nil
		if j.Timeout > 0 {
			j.Deadline = now.Add(j.Timeout)
		}
		return tx.Save(ctx, &j)
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// complete answers a key and checks the kind of the receipt.
func (w *world) complete(name, key string, result any, want jobs.ReceiptKind) {
	w.Helper()
	r, err := w.Complete(w.Context(), name, key, result)
	w.ok(err)
	if r.Kind != want {
		w.Fatalf("the answer to %s was %s, want %s", key, r.Kind, want)
	}
}

func (w *world) reject(name, key string, want jobs.ReceiptKind) {
	w.Helper()
	r, err := w.Reject(w.Context(), name, key, errors.New("no"))
	w.ok(err)
	if r.Kind != want {
		w.Fatalf("the refusal of %s was %s, want %s", key, r.Kind, want)
	}
}

// await calls Await and checks whether the answer had come before.
func (w *world) await(a jobs.Await, want bool) {
	w.Helper()
	there, err := w.Await(w.Context(), a)
	w.ok(err)
	if there != want {
		w.Fatalf("the answer was there: %v", there)
	}
}

// TestAnswerEndsTheJob shows that the first answer ends the job, and that later answers return
// other receipts.
// Promises: Q4, Q6.
func TestAnswerEndsTheJob(t *testing.T) {
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Key: "k", Queue: "q"})
		h := w.admit(id, time.Minute)
		w.await(jobs.Await{ID: id, Token: h.Token}, false)
		if j := w.job(id); j.State != jobs.Running || j.Phase != jobs.Awaiting || !j.Due.Equal(j.Deadline) || !j.Deadline.Equal(j.LastRun.Add(24*time.Hour)) {
			w.Fatalf("it does not await until its deadline: %+v", j)
		}
		w.complete("a", "k", map[string]int{"n": 1}, jobs.Accepted)
		j := w.job(id)
		if j.State != jobs.Finished || string(j.Answer) != `{"n":1}` || !j.Expires.Equal(j.Changed.Add(24*time.Hour)) || !j.Due.IsZero() || !j.Deadline.IsZero() {
			w.Fatalf("it is not finished as it should be: %+v", j)
		}
		w.complete("a", "k", 2, jobs.Duplicate)
		w.reject("a", "k", jobs.Duplicate)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: id, Token: h.Token}), jobs.ErrStale)
		w.is(w.Fail(w.Context(), jobs.Fail{ID: id, Token: h.Token}), jobs.ErrStale)
		w.complete("a", "other", 2, jobs.Early)
		w.complete("b", "k", 2, jobs.Early)
		if now := w.job(id); string(now.Answer) != string(j.Answer) || !now.Changed.Equal(j.Changed) {
			w.Fatalf("a job that is over was changed: %+v", now)
		}
		time.Sleep(24 * time.Hour)
		n, err := w.Purge(w.Context())
		w.ok(err)
		s := w.Stats()
		if n != 1 || s.Accepted != 1 || s.Duplicate != 2 || s.Early != 2 || s.Unknown != 2 || s.Finished != 1 || s.Stale != 2 || s.Purged != 1 {
			w.Fatalf("%d purged, %+v", n, s)
		}
		w.complete("a", "k", 2, jobs.Early)
	})
}

// TestAnswerToRespond shows that a job with Respond is claimed with its answer.
func TestAnswerToRespond(t *testing.T) {
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Respond: true})
		h := w.get("a")
		w.ok(w.Expect(w.Context(), jobs.Expect{ID: id, Token: h.Token, Key: "k"}))
		w.ok(w.Expect(w.Context(), jobs.Expect{ID: id, Token: h.Token, Key: "k"}))
		w.await(jobs.Await{ID: id, Token: h.Token, Timeout: task.Set(time.Hour)}, false)
		w.none("a")
		w.complete("a", "k", nil, jobs.Accepted)
		w.complete("a", "k", nil, jobs.Duplicate)
		h = w.get("a")
		if h.Phase != jobs.Answered || string(h.Answer) != "null" || h.Run != 1 {
			w.Fatalf("got %+v", h)
		}
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Token: h.Token}))
		w.state(jobs.Finished, id)
		w.complete("a", "k", nil, jobs.Duplicate)
	})
}

// TestAnswerTimesOut shows that a job without an answer at its deadline is claimed, and that an
// answer may still come first.
// Promises: Q12.
func TestAnswerTimesOut(t *testing.T) {
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Key: "k"})
		h := w.get("a")
		w.await(jobs.Await{ID: id, Token: h.Token, Timeout: task.Set(time.Hour)}, false)
		time.Sleep(time.Hour - 1)
		w.none("a")
		time.Sleep(time.Nanosecond)
		h = w.get("a")
		if h.Phase != jobs.Awaiting || h.Token != 2 || h.Run != 1 || w.Stats().TimedOut != 1 {
			w.Fatalf("got %+v", h)
		}
		w.complete("a", "k", 1, jobs.Accepted)
		w.is(w.Fail(w.Context(), jobs.Fail{ID: id, Token: h.Token, Reason: "timeout"}), jobs.ErrStale)
		w.state(jobs.Finished, id)

		id = w.create(jobs.Spec{Name: "a", Key: "k"})
		h = w.get("a")
		w.await(jobs.Await{ID: id, Token: h.Token, Timeout: task.Set(time.Hour)}, false)
		time.Sleep(time.Hour)
		h = w.get("a")
		w.ok(w.Fail(w.Context(), jobs.Fail{ID: id, Token: h.Token, Reason: "timeout"}))
		w.complete("a", "k", 1, jobs.Late)
		w.state(jobs.Failed, id)
	})
}

// TestEarlyAnswers shows that an answer before Await is stored for a time and then claimed.
// Promises: Q5.
func TestEarlyAnswers(t *testing.T) {
	bubble(t, func(w *world) {
		w.complete("a", "k", 1, jobs.Early)
		w.complete("a", "k", 2, jobs.Duplicate)
		id := w.create(jobs.Spec{Name: "a"})
		h := w.get("a")
		time.Sleep(time.Minute - 1)
		w.await(jobs.Await{ID: id, Token: h.Token, Key: "k"}, true)
		if j := w.job(id); j.State != jobs.Finished || string(j.Answer) != "1" {
			w.Fatalf("it has not got its answer: %+v", j)
		}
		w.complete("a", "k", 3, jobs.Duplicate)

		w.complete("a", "l", 1, jobs.Early)
		id = w.create(jobs.Spec{Name: "a"})
		h = w.get("a")
		time.Sleep(time.Minute)
		w.await(jobs.Await{ID: id, Token: h.Token, Key: "l"}, false)
		if j := w.job(id); j.Phase != jobs.Awaiting {
			w.Fatalf("it does not await its answer: %+v", j)
		}
	})
}

// TestAnswerWhileRequesting shows that with Respond an answer between Expect and Await takes effect
// at Await.
func TestAnswerWhileRequesting(t *testing.T) {
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a", Respond: true})
		h := w.get("a")
		w.ok(w.Expect(w.Context(), jobs.Expect{ID: id, Token: h.Token, Key: "k"}))
		w.reject("a", "k", jobs.Accepted)
		w.complete("a", "k", 1, jobs.Duplicate)
		w.is(w.Expect(w.Context(), jobs.Expect{ID: id, Token: h.Token, Key: "other"}), jobs.ErrAnswerThere)
		w.none("a")
		w.await(jobs.Await{ID: id, Token: h.Token}, true)
		h = w.get("a")
		if h.Phase != jobs.Answered || h.Answer != nil || h.Reason != "no" {
			w.Fatalf("got %+v", h)
		}

		w.create(jobs.Spec{Name: "b"})
		h = w.get("b")
		w.ok(w.Expect(w.Context(), jobs.Expect{ID: h.ID, Token: h.Token, Key: "k"}))
		w.complete("b", "k", 1, jobs.Accepted)
		w.await(jobs.Await{ID: h.ID, Token: h.Token}, true)
		w.state(jobs.Finished, h.ID)
		w.is(w.Finish(w.Context(), jobs.Finish{ID: h.ID, Token: h.Token}), jobs.ErrStale)
	})
}

// busy blocks all transactions, so that later changes share one. begin calls a function and waits
// until it is blocked. release unblocks all calls and waits for them.
func (w *world) busy() (begin func(fn func() error), release func()) {
	free := make(chan struct{})
	var all sync.WaitGroup
	begin = func(fn func() error) {
		all.Go(func() {
			if err := fn(); err != nil {
				w.Error(err)
			}
		})
		synctest.Wait()
	}
	begin(func() error {
		return w.store.Update(context.Background(), func(context.Context, jobstore.Tx) error { <-free; return nil })
	})
	for _, key := range []string{"x", "y"} { // as many transactions as may run at a time
		begin(func() error { return second(w.Complete(context.Background(), "other", key, 1)) })
	}
	return begin, func() { close(free); all.Wait() }
}

// TestAnswerThatNobodyWaitsFor shows that a queued change is dropped when its caller stops waiting.
func TestAnswerThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		begin, release := w.busy()
		begin(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := w.Complete(ctx, "ask", "k", 1); !errors.Is(err, jobs.ErrUnavailable) {
				return fmt.Errorf("the answer: %w", err)
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		release()
		w.complete("ask", "k", 2, jobs.Early)
	})
}

// TestEarlyAnswerToOneWithOthers shows that a shared transaction handles an answer and an Await of
// the same job that needs its own transaction.
func TestEarlyAnswerToOneWithOthers(t *testing.T) {
	t.Parallel()
	inQueue(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "ask", SequenceKey: "s"})
		j := w.get("ask")
		begin, release := w.busy()
		var receipt jobs.Receipt
		var there bool
		begin(func() (err error) { receipt, err = w.Complete(context.Background(), "ask", "k", 1); return err })
		begin(func() (err error) {
			there, err = w.Await(context.Background(), jobs.Await{ID: id, Token: j.Token, Key: "k"})
			return err
		})
		release()
		if receipt.Kind != jobs.Early || !there {
			w.Fatalf("the answer was %s, and there: %v", receipt.Kind, there)
		}
		w.state(jobs.Finished, id)
	})
}
