package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// TestAnswerInEveryState shows the effect of an answer and of a refusal on a job in every state.
// Promises: Q6, Q7.
func TestAnswerInEveryState(t *testing.T) {
	type want struct {
		kind  jobs.ReceiptKind
		state jobs.State
		phase jobs.Phase
		token int64 // increase of the token
	}
	early := func(s jobs.State) [3]want {
		w := want{jobs.Early, s, "", 0}
		return [3]want{w, w, w}
	}
	over := func(k jobs.ReceiptKind, s jobs.State, p jobs.Phase) [3]want {
		w := want{k, s, p, 0}
		return [3]want{w, w, w}
	}
	// The effects of a result that ends the job, of a result with Respond, and of a refusal.
	accepted := func(look want) [3]want { return [3]want{{jobs.Accepted, jobs.Finished, jobs.Answered, 0}, look, look} }
	goes := want{jobs.Accepted, jobs.Running, jobs.Answered, 1}
	for name, c := range map[string]struct {
		bring func(w *world, id jobs.ID) // the job is QUEUED in a queue
		want  [3]want
	}{
		"never begun": {func(*world, jobs.ID) {}, early(jobs.Queued)},
		"requests":    {func(w *world, id jobs.ID) { w.admit(id, time.Minute) }, accepted(want{jobs.Accepted, jobs.Running, "", 0})},
		"awaits":      {func(w *world, id jobs.ID) { w.await(jobs.Await{ID: id, Token: w.admit(id, time.Minute).Token}, false) }, accepted(goes)},
		"is to retry": {func(w *world, id jobs.ID) {
			w.ok(w.Retry(w.Context(), jobs.Retry{ID: id, Token: w.admit(id, time.Minute).Token}))
		}, accepted(goes)},
		"is answered": {func(w *world, id jobs.ID) {
			w.await(jobs.Await{ID: id, Token: w.admit(id, time.Minute).Token}, false)
			w.reject("a", "k", jobs.Accepted)
		}, over(jobs.Duplicate, jobs.Running, jobs.Answered)},
		"begins anew": {func(w *world, id jobs.ID) {
			w.admit(id, time.Minute)
			w.ok(w.Requeue(w.Context(), []jobs.ID{id}, ""))
		}, early(jobs.Queued)},
		"failed": {func(w *world, id jobs.ID) {
			w.ok(w.Fail(w.Context(), jobs.Fail{ID: id, Token: w.admit(id, time.Minute).Token}))
		}, over(jobs.Late, jobs.Failed, "")},
		"failed after a refusal": {func(w *world, id jobs.ID) {
			h := w.admit(id, time.Minute)
			w.await(jobs.Await{ID: id, Token: h.Token}, false)
			w.reject("a", "k", jobs.Accepted)
			w.ok(w.Fail(w.Context(), jobs.Fail{ID: id}))
		}, over(jobs.Duplicate, jobs.Failed, jobs.Answered)},
		"finished by itself": {func(w *world, id jobs.ID) {
			w.ok(w.Finish(w.Context(), jobs.Finish{ID: id, Token: w.admit(id, time.Minute).Token}))
		}, over(jobs.Late, jobs.Finished, "")},
		"withdrawn": {func(w *world, id jobs.ID) {
			w.await(jobs.Await{ID: id, Token: w.admit(id, time.Minute).Token}, false)
			w.ok(w.Withdraw(w.Context(), id))
		}, over(jobs.Late, jobs.Cancelled, "")},
		"withdrawn before": {func(w *world, id jobs.ID) { w.ok(w.Withdraw(w.Context(), id)) }, over(jobs.Late, jobs.Cancelled, "")},
		"deleted":          {func(w *world, id jobs.ID) { w.ok(w.Delete(w.Context(), id)) }, early("")},
	} {
		for i, answer := range []struct {
			respond bool
			give    func(w *world) (jobs.Receipt, error)
		}{
			{false, func(w *world) (jobs.Receipt, error) { return w.Complete(w.Context(), "a", "k", 1) }},
			{true, func(w *world) (jobs.Receipt, error) { return w.Complete(w.Context(), "a", "k", 1) }},
			{false, func(w *world) (jobs.Receipt, error) { return w.Reject(w.Context(), "a", "k", errors.New("no")) }},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, false, jobs.Config{})
					id := w.create(jobs.Spec{Name: "a", Queue: "q", Key: "k", Respond: answer.respond})
					c.bring(w, id)
					var before jobs.Row
					if c.want[i].state != "" {
						before = w.job(id)
					}
					r, err := answer.give(w)
					w.ok(err)
					want := c.want[i]
					if r.Kind != want.kind {
						t.Fatalf("the receipt is %s, want %s", r.Kind, want.kind)
					}
					if want.state == "" {
						w.state("", id)
						return
					}
					j := w.job(id)
					if r.Job != id || j.State != want.state || j.Phase != want.phase || j.Token != before.Token+want.token {
						t.Fatalf("receipt %+v, job %+v", r, j)
					}
					if j.Phase == jobs.Answered && j.State == jobs.Running && (!j.Deadline.IsZero() || j.Due.After(j.Changed)) {
						t.Fatalf("it is not to be looked at now: %+v", j)
					}
					if again, err := answer.give(w); err != nil || again.Kind == jobs.Accepted || again.Kind == jobs.Early {
						t.Fatalf("the same answer again: %+v, %v", again, err)
					}
				})
			})
		}
	}
}

// TestAnswerRacesAwait shows that an answer during its request is not lost, whether it comes before
// or after Await.
func TestAnswerRacesAwait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	for i := range 200 {
		key := fmt.Sprint("k", i)
		id := w.create(jobs.Spec{Name: "a"})
		h := w.get("a")
		var wg sync.WaitGroup
		wg.Go(func() {
			if i%2 == 0 {
				if err := w.Expect(context.Background(), jobs.Expect{ID: id, Token: h.Token, Key: key}); err != nil && !errors.Is(err, jobs.ErrStale) {
					t.Error(err)
				}
			}
			if _, err := w.Await(context.Background(), jobs.Await{ID: id, Token: h.Token, Key: key}); err != nil {
				t.Error(err)
			}
		})
		var r jobs.Receipt
		wg.Go(func() {
			var err error
			if r, err = w.Complete(context.Background(), "a", key, i); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if j := w.job(id); j.State != jobs.Finished || string(j.Answer) != fmt.Sprint(i) || r.Kind != jobs.Accepted && r.Kind != jobs.Early {
			t.Fatalf("the answer was %s, the job is %+v", r.Kind, j)
		}
	}
}

// TestAnswersOfMany shows that concurrent answers share transactions, that no answer fails because
// of another, and that no goroutine is left.
func TestAnswersOfMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	const n = 700
	specs := make([]jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "a", Key: fmt.Sprint("k", i)}
		if i%10 == 0 { // these jobs need a transaction of their own
			specs[i].SequenceKey = fmt.Sprint("s", i)
		}
	}
	made, err := w.CreateAll(w.Context(), specs)
	w.ok(err)
	got, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{"a"}}, Max: n})
	w.ok(err)
	if len(got) != n {
		t.Fatalf("%d jobs", len(got))
	}
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			token := got[i].Token
			if i%7 == 3 {
				token++
			}
			if _, err := w.Await(context.Background(), jobs.Await{ID: got[i].ID, Token: token}); (err != nil) != (i%7 == 3) || err != nil && !errors.Is(err, jobs.ErrStale) {
				t.Errorf("job %d: %v", got[i].ID, err)
			}
		})
	}
	wg.Wait()
	answers := make([]jobs.Answer, 0, n+1)
	for i := range n {
		answers = append(answers, jobs.Answer{Name: "a", Key: fmt.Sprint("k", i), Result: fmt.Append(nil, i)})
	}
	receipts, err := w.AnswerAll(w.Context(), append(answers, answers[5], jobs.Answer{Name: "a", Key: "nobody's"}))
	w.ok(err)
	for i, r := range receipts[:n] {
		if j := w.job(made[i].ID); r.Kind != jobs.Accepted || r.Job != j.ID || j.State != jobs.Finished || string(j.Answer) != fmt.Sprint(i) {
			t.Fatalf("receipt %+v, job %+v", r, j)
		}
	}
	if receipts[n].Kind != jobs.Duplicate || receipts[n+1].Kind != jobs.Early {
		t.Fatalf("%+v", receipts[n:])
	}
	// Other tests run at the same time and have goroutines, too.
	testwait.Until(t, "that those who waited have gone", func() bool { return runtime.NumGoroutine() < n/2 })
}

// TestAnswerOfWhoLeaves shows that a ctx that ends returns only the call with this ctx.
func TestAnswerOfWhoLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	id := w.create(jobs.Spec{Name: "a", Key: "k"})
	w.get("a")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.Complete(ctx, "a", "k", 1)
	w.is(err, jobs.ErrUnavailable)
	w.state(jobs.Running, id)
	w.complete("a", "k", 1, jobs.Accepted)
}

// TestBadAnswers shows that an invalid answer is refused before any answer is given.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	for _, bad := range []jobs.Answer{
		{Key: "k"},
		{Name: "a"},
		{Name: "a", Key: "k", Result: []byte("{")},
		{Name: "a", Key: string(make([]byte, 600))},
		{Name: "a", Key: "\x00"},
		{Name: "a", Key: "k", Result: []byte("\"\xff\"")},
		{Name: "a", Key: "k", Result: make([]byte, jobs.MaxData+1)},
	} {
		_, err := w.AnswerAll(w.Context(), []jobs.Answer{{Name: "a", Key: "good"}, bad})
		w.is(err, jobs.ErrBadJob)
	}
	if _, err := w.Complete(w.Context(), "a", "k", func() {}); !errors.Is(err, jobs.ErrBadJob) {
		t.Fatal(err)
	}
	if s := w.Stats(); s.Early != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestTimeoutAfterRestart shows that another service applies a deadline that a closed service has
// set.
// Promises: Q12.
func TestTimeoutAfterRestart(t *testing.T) {
	bubble(t, func(w *world) {
		id := w.create(jobs.Spec{Name: "a"})
		h := w.get("a")
		w.await(jobs.Await{ID: id, Token: h.Token, Key: "k", Timeout: task.Set(time.Hour)}, false)
		w.ok(w.Service.Close(w.Context()))
		time.Sleep(time.Hour)
		s, err := jobs.New(jobs.Config{Store: w.store})
		w.ok(err)
		w.Service = s
		if h := w.get("a"); h.Phase != jobs.Awaiting || h.ID != id {
			w.Fatalf("%+v", h)
		}
		w.ok(s.Close(w.Context()))
	})
}

// TestPurgeInBatches shows that Purge deletes all expired jobs and no others.
func TestPurgeInBatches(t *testing.T) {
	bubble(t, func(w *world) {
		specs := make([]jobs.Spec, 1200)
		for i := range specs {
			specs[i] = jobs.Spec{Name: "a", Queue: "q"}
		}
		made, err := w.CreateAll(w.Context(), specs)
		w.ok(err)
		for _, m := range made[:1100] {
			w.ok(w.Withdraw(w.Context(), m.ID))
		}
		w.ok(w.Requeue(w.Context(), []jobs.ID{made[0].ID}, ""))
		if n, err := w.Purge(w.Context()); n != 0 || err != nil {
			w.Fatalf("%d, %v", n, err)
		}
		time.Sleep(24 * time.Hour)
		if n, err := w.Purge(w.Context()); n != 1099 || err != nil {
			w.Fatalf("%d, %v", n, err)
		}
		w.state(jobs.Queued, made[0].ID, made[1100].ID)
	})
}

// TestOnAnswer shows that OnAnswer receives all answers that were not Accepted, and that a panic of
// it has no effect.
// Promises: Q5.
func TestOnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := newWorld(t, false, jobs.Config{Retention: time.Hour, EarlyFor: time.Second, OnAnswer: func(a jobs.Answer, r jobs.Receipt) {
			told = append(told, fmt.Sprintf("%s %s%s %s", a.Key, a.Result, a.Refusal, r.Kind))
			panic("in vain")
		}})
		w.complete("a", "k", 1, jobs.Early)
		w.create(jobs.Spec{Name: "a", Key: "l"})
		w.get("a")
		w.complete("a", "l", 2, jobs.Accepted)
		w.reject("a", "l", jobs.Duplicate)
		time.Sleep(time.Second)
		_, err := w.Purge(w.Context())
		w.ok(err)
		if got := fmt.Sprint(told); got != "[k 1 early l no duplicate k 1 unknown]" {
			t.Fatal(got)
		}
	})
}

// TestKeysAreTaken shows that only one open job can have a key.
// Promises: Q3.
func TestKeysAreTaken(t *testing.T) {
	bubble(t, func(w *world) {
		for _, spec := range []jobs.Spec{{Name: "a", Key: "k"}, {Name: "b", UniqueKey: "k"}} {
			id := w.create(spec)
			_, err := w.Create(w.Context(), spec)
			var taken *jobs.KeyTakenError
			if !errors.As(err, &taken) || taken.Job != id || taken.Key != "k" || !errors.Is(err, jobs.ErrKeyTaken) || !errors.Is(err, jobs.ErrState) {
				w.Fatalf("%v", err)
			}
			_, err = w.CreateAll(w.Context(), []jobs.Spec{{Name: "c", Key: "m"}, {Name: "c", Key: "m"}})
			if !errors.As(err, &taken) || taken.Job != 0 {
				w.Fatalf("two of one call: %v", err)
			}
			w.none("c")
			w.ok(w.Withdraw(w.Context(), id))
			second := w.create(spec)
			err = w.Requeue(w.Context(), []jobs.ID{id}, "")
			w.is(err, jobs.ErrKeyTaken)
			if want := fmt.Sprintf("job %d: ", id); !strings.Contains(err.Error(), want) {
				w.Fatalf("%q is not in %v", want, err)
			}
			w.ok(w.Requeue(w.Context(), []jobs.ID{id}, "other"))
			w.is(w.Requeue(w.Context(), []jobs.ID{id}, spec.Name), jobs.ErrKeyTaken)
			w.ok(w.Withdraw(w.Context(), second))
			w.ok(w.Withdraw(w.Context(), second))
		}
		id := w.create(jobs.Spec{Name: "d"})
		w.ok(w.Finish(w.Context(), jobs.Finish{ID: w.get("d").ID}))
		w.is(w.Withdraw(w.Context(), id), jobs.ErrNotFound)
	})
}

// TestQueueSpecs shows which Specs with queues are valid, and the jobs that they create.
// Promises: Q18, Q29, Q30.
func TestQueueSpecs(t *testing.T) {
	bubble(t, func(w *world) { // the clock starts at midnight
		windows, err := when.ParseWindows("06:00-18:00", nil)
		w.ok(err)
		now := time.Now().UTC()
		for field, spec := range map[string]jobs.Spec{
			"weight":      {Weight: task.Set(1.0)},
			"windows":     {Windows: windows},
			"timeout":     {Timeout: task.Set(time.Hour)},
			"retryAfter":  {Queue: "q", RetryAfter: "+1 HOUR"},
			"parentJobID": {Queue: "q", Parent: 1},
			"mock":        {Queue: "q", Mock: true},
			"unique":      {Queue: "q", Unique: true},
			"queue":       {Queue: "\x00"},
			"key":         {Key: "\xff"},
			"uniqueKey":   {UniqueKey: "\x00"},
		} {
			spec.Name = "a"
			_, err := w.Create(w.Context(), spec)
			var bad *jobs.FieldError
			if !errors.As(err, &bad) || bad.Field != field {
				w.Errorf("%s: %v", field, err)
			}
		}
		for weight, want := range map[float64]int64{0: 0, 1: 1000, 1.1: 1100, 0.1: 100, 0.0001: 1, 2.0001: 2001, 1e-9: 1, 12345.678: 12345678, 0.07: 70, 1.005: 1005} {
			if j := w.job(w.create(jobs.Spec{Name: "a", Queue: "q", Weight: task.Set(weight)})); j.Weight != want {
				w.Errorf("a weight of %v is %d thousandths, want %d", weight, j.Weight, want)
			}
		}
		for at, want := range map[time.Time]time.Time{
			{}:                       now.Add(6 * time.Hour),
			now.Add(-time.Hour):      now.Add(6 * time.Hour),
			now.Add(7 * time.Hour):   now.Add(7 * time.Hour),
			now.Add(18 * time.Hour):  now.Add(30 * time.Hour),
			now.Add(100 * time.Hour): now.Add(102 * time.Hour),
		} {
			j := w.job(w.create(jobs.Spec{Name: "a", Queue: "q", Windows: windows, FirstRun: at}))
			if !j.NextRun.Equal(want) || !j.Due.Equal(want) || j.Timeout != 24*time.Hour || j.Attempt != 0 {
				w.Errorf("%v: it runs at %v, want %v", at, j.NextRun, want)
			}
		}
		j := w.job(w.create(jobs.Spec{Name: "a", Queue: "q", FirstRun: now.Add(-time.Hour), Timeout: task.Set(time.Duration(0))}))
		if !j.NextRun.Equal(now) || j.Timeout != 0 {
			w.Errorf("%+v", j)
		}
		h := w.admit(w.create(jobs.Spec{Name: "a", Queue: "q", Windows: windows, FirstRun: now.Add(7 * time.Hour)}), time.Minute)
		w.ok(w.Retry(w.Context(), jobs.Retry{ID: h.ID, Token: h.Token, Delay: 20 * time.Hour}))
		if j := w.job(h.ID); !j.NextRun.Equal(now.Add(30*time.Hour)) || j.Attempt != 1 {
			w.Errorf("a retry outside of its windows: %+v", j)
		}
	})
}

// TestOneOfManyGetsTheKey shows that only one of several concurrent Expect calls gets a key,
// although they share transactions. The key is free again when that job is over.
func TestOneOfManyGetsTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, jobs.Config{})
	const n = 40
	specs := make([]jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.Spec{Name: "a"}
	}
	_, err := w.CreateAll(w.Context(), specs)
	w.ok(err)
	got, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{"a"}}, Max: n})
	w.ok(err)
	for round := range 10 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		had := 0
		note := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				had++
			} else if !errors.Is(err, jobs.ErrKeyTaken) {
				t.Error(err)
			}
		}
		key := fmt.Sprint("k", round)
		for i := range got {
			wg.Go(func() {
				if i%8 == 0 {
					_, err := w.Create(context.Background(), jobs.Spec{Name: "a", Key: key, FirstRun: time.Now().Add(time.Hour)})
					note(err)
					return
				}
				note(w.Expect(context.Background(), jobs.Expect{ID: got[i].ID, Token: got[i].Token, Key: key}))
			})
		}
		wg.Wait()
		if had != 1 {
			t.Fatalf("%d jobs have got %s", had, key)
		}
	}
}
