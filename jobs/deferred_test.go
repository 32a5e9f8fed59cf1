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
	"github.com/swarmiji/swarmiji/task"
)

// kept is a world with deferrals of the tasks of one queue.
type kept struct {
	*world
	*jobs.Deferrals
}

func deferrals(w *world) *kept { return &kept{w, jobs.NewDeferrals(w.Service)} }

const keptLease = 30 * time.Second

func attemptOf(id string, generation int) jobs.Deferral {
	return jobs.Deferral{Queue: "q", Name: "ask", Task: task.ID(id), Generation: generation, Data: fmt.Appendf(nil, `{"of":%q}`, id)}
}

func (k *kept) expect(d jobs.Deferral, key string) {
	k.Helper()
	if err := k.Deferrals.Expect(k.Context(), d, key); err != nil {
		k.Fatalf("Expect %s: %v", key, err)
	}
}

func (k *kept) await(d jobs.Deferral, key string, within time.Duration, want jobs.Awaited) {
	k.Helper()
	if got, err := k.Deferrals.Await(k.Context(), d, key, within); err != nil || got != want {
		k.Fatalf("Await %s: %+v, %v; want %+v", key, got, err, want)
	}
}

func (k *kept) answer(key string, want jobs.ReceiptKind) {
	k.Helper()
	if got, err := k.Complete(k.Context(), "ask", key, key+"!"); err != nil || got.Kind != want {
		k.Fatalf("the answer for %s: %+v, %v; want %s", key, got, err, want)
	}
}

// claim takes the only one that is due.
func (k *kept) claim(kind jobs.DeferralKind) *jobs.ClaimedDeferral {
	k.Helper()
	got, err := k.Claim(k.Context(), []string{"other", "q"}, 10, keptLease)
	if err != nil || len(got.Claimed) != 1 || got.Claimed[0].Kind != kind {
		k.Fatalf("claimed %+v, %v; want one of kind %d", got, err, kind)
	}
	return &got.Claimed[0]
}

// idle expects that nothing is due, for a time.
func (k *kept) idle(wait time.Duration) {
	k.Helper()
	got, err := k.Claim(k.Context(), []string{"q"}, 10, keptLease)
	if err != nil || len(got.Claimed) != 0 || got.Wait != wait {
		k.Fatalf("claimed %+v, %v; want none for %s", got, err, wait)
	}
}

func (k *kept) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func (k *kept) is(err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Fatalf("error is %v, want %v", err, want)
	}
}

func (k *kept) deferred(d jobs.Deferral, want bool) {
	k.Helper()
	if got, err := k.Deferred(k.Context(), d); err != nil || got != want {
		k.Fatalf("deferred: %v, %v; want %v", got, err, want)
	}
}

func TestDeferralIsAnswered(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		d := attemptOf("t1", 0)
		k.deferred(d, false)
		k.expect(d, "k")
		k.deferred(d, false)
		k.idle(task.DefaultAnswerWithin)
		k.await(d, "", time.Hour, jobs.Awaited{})
		k.deferred(d, true)
		k.await(d, "k", time.Minute, jobs.Awaited{Before: true}) // another delivery of the message
		k.idle(time.Hour)
		k.is(k.Deferrals.Expect(k.Context(), d, "k"), jobs.ErrStale)
		k.answer("k", jobs.Accepted)
		k.answer("k", jobs.Duplicate)
		c := k.claim(jobs.DeferralAnswered)
		if string(c.Answer) != `"k!"` || string(c.Data) != `{"of":"t1"}` || c.Queue != "q" || c.Name != "ask" || c.Again {
			k.Fatalf("claimed %+v", c)
		}
		k.idle(keptLease)
		k.must(k.End(k.Context(), c))
		k.must(k.End(k.Context(), c)) // its answer was lost
		k.deferred(d, true)
		k.answer("k", jobs.Duplicate)
		k.idle(24 * time.Hour)
		k.is(k.Deferrals.Expect(k.Context(), d, "k"), jobs.ErrStale)
		time.Sleep(25 * time.Hour)
		if n, err := k.Purge(k.Context()); err != nil || n != 1 {
			k.Fatalf("purged %d, %v", n, err)
		}
		k.deferred(d, false)
	})
}

func TestDeferralTimesOut(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.await(attemptOf("t1", 0), "k", time.Hour, jobs.Awaited{})
		time.Sleep(time.Hour)
		c := k.claim(jobs.DeferralTimedOut)
		k.answer("k", jobs.Duplicate) // it is being settled: no answer comes in any more
		k.must(k.End(k.Context(), c))
		k.answer("k", jobs.Late)
		k.await(attemptOf("t2", 0), "k", 0, jobs.Awaited{}) // the key is free again
		k.must(k.End(k.Context(), k.claim(jobs.DeferralTimedOut)))
	})
}

// TestAnswerAfterATimeout: what comes between a timeout and the next attempt is for that one, as after a refusal.
func TestAnswerAfterATimeout(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.await(attemptOf("t1", 0), "k", time.Hour, jobs.Awaited{})
		time.Sleep(time.Hour)
		k.must(k.Next(k.Context(), k.claim(jobs.DeferralTimedOut), time.Now().Add(time.Hour)))
		k.answer("k", jobs.Accepted)
		next := attemptOf("t1", 1)
		k.deferred(next, false)
		k.await(next, "k", time.Hour, jobs.Awaited{Answered: true})
		if c := k.claim(jobs.DeferralAnswered); string(c.Answer) != `"k!"` {
			k.Fatalf("%+v", c)
		}
	})
}

func TestDeferralIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		d := attemptOf("t1", 0)
		k.await(d, "k", time.Hour, jobs.Awaited{})
		if got, err := k.Reject(k.Context(), "ask", "k", errors.New("no")); err != nil || got.Kind != jobs.Accepted {
			k.Fatalf("%+v, %v", got, err)
		}
		c := k.claim(jobs.DeferralRefused)
		if c.Refusal != "no" {
			k.Fatalf("%+v", c)
		}
		// The next attempt is queued: what still comes for the key is for that one.
		k.must(k.Next(k.Context(), c, time.Now().Add(time.Hour)))
		k.is(k.End(k.Context(), c), jobs.ErrStale)
		k.deferred(d, true)
		k.is(k.Deferrals.Expect(k.Context(), d, "k"), jobs.ErrStale)
		k.answer("k", jobs.Accepted)
		k.idle(24 * time.Hour)
		next := attemptOf("t1", 1)
		k.deferred(next, false)
		k.expect(next, "k")
		k.await(next, "", time.Hour, jobs.Awaited{Answered: true})
		k.must(k.End(k.Context(), k.claim(jobs.DeferralAnswered)))
		k.is(k.Deferrals.Expect(k.Context(), next, "k"), jobs.ErrStale)
	})
}

func TestDeferralComesEarly(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.answer("k", jobs.Early)
		k.await(attemptOf("t1", 0), "k", time.Hour, jobs.Awaited{Answered: true})
		if c := k.claim(jobs.DeferralAnswered); string(c.Answer) != `"k!"` {
			k.Fatalf("%+v", c)
		}
		d := attemptOf("t2", 0)
		k.expect(d, "l")
		k.answer("l", jobs.Accepted) // the request is under way
		k.idle(keptLease)
		k.await(d, "l", time.Hour, jobs.Awaited{Answered: true})
		k.claim(jobs.DeferralAnswered)
		e := attemptOf("t3", 0)
		k.expect(e, "m")
		k.answer("m", jobs.Accepted)
		k.expect(e, "n") // what came for the other key is nobody's
		k.await(e, "", time.Hour, jobs.Awaited{})
	})
}

func TestDeferralHasOneHolder(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.await(attemptOf("t1", 0), "k", time.Hour, jobs.Awaited{})
		k.answer("k", jobs.Accepted)
		first := k.claim(jobs.DeferralAnswered)
		time.Sleep(keptLease / 2)
		if lost, err := k.Renew(k.Context(), []*jobs.ClaimedDeferral{first}, keptLease); err != nil || len(lost) != 0 {
			k.Fatalf("lost %v, %v", lost, err)
		}
		time.Sleep(keptLease / 2)
		k.idle(keptLease / 2)
		time.Sleep(keptLease / 2)
		second := k.claim(jobs.DeferralAnswered)
		if !second.Again {
			k.Fatal("nobody says that it was claimed before")
		}
		k.is(k.End(k.Context(), first), jobs.ErrStale)
		k.is(k.Next(k.Context(), first, time.Time{}), jobs.ErrStale)
		if lost, err := k.Renew(k.Context(), []*jobs.ClaimedDeferral{first, second}, keptLease); err != nil || len(lost) != 1 || lost[0] != first.ID {
			k.Fatalf("lost %v, %v", lost, err)
		}
		k.must(k.Back(k.Context(), second, time.Minute))
		k.idle(time.Minute)
		time.Sleep(time.Minute)
		k.must(k.End(k.Context(), k.claim(jobs.DeferralAnswered)))
	})
}

func TestDeferralIsRoused(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.await(attemptOf("t1", 0), "k", time.Hour, jobs.Awaited{})
		k.expect(attemptOf("t2", 0), "l")
		var listed []jobs.ID
		k.must(k.List(k.Context(), "q", func(id jobs.ID, name string, data []byte) bool {
			listed = append(listed, id)
			return true
		}))
		ids, err := k.Find(k.Context(), []string{"other", "ask"}, []task.ID{"t1", "t9"})
		if err != nil || len(ids) != 1 || len(listed) != 1 || ids[0] != listed[0] {
			k.Fatalf("found %v, %v, listed %v", ids, err, listed)
		}
		k.must(k.Rouse(k.Context(), ids))
		c := k.claim(jobs.DeferralRoused)
		k.must(k.Back(k.Context(), c, 2*time.Hour))
		k.idle(time.Hour) // at its deadline
		k.must(k.Rouse(k.Context(), ids))
		k.must(k.End(k.Context(), k.claim(jobs.DeferralRoused)))
		k.answer("k", jobs.Late)
		k.must(k.Rouse(k.Context(), ids)) // it is over
		k.idle(24 * time.Hour)
	})
}

func TestDeferralIsDropped(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		d := attemptOf("t1", 0)
		k.expect(d, "k")
		k.must(k.Drop(k.Context(), d))
		k.must(k.Drop(k.Context(), d))
		k.expect(attemptOf("t2", 0), "k")
		var taken *jobs.KeyTakenError
		if err := k.Deferrals.Expect(k.Context(), d, "k"); !errors.As(err, &taken) || taken.Key != "k" {
			k.Fatalf("error is %v", err)
		}
		k.expect(attemptOf("t2", 1), "k") // a later attempt of the same task may
		k.is(k.Deferrals.Expect(k.Context(), attemptOf("t2", 0), "k"), jobs.ErrStale)
		k.must(k.Drop(k.Context(), attemptOf("t2", 0))) // an old one takes nothing back
		k.answer("k", jobs.Accepted)
		time.Sleep(24 * time.Hour)
		k.must(k.End(k.Context(), k.claim(jobs.DeferralLost)))
	})
}

// An attempt that expected an answer, and of which nothing was heard for a day, is not over: its message may be in the broker for longer.
func TestLostDeferralEndsNoAttempt(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		d := attemptOf("t1", 0)
		k.expect(d, "k")
		time.Sleep(24 * time.Hour)
		k.must(k.End(k.Context(), k.claim(jobs.DeferralLost)))
		k.answer("k", jobs.Late)
		k.deferred(d, false) // its message comes again
		k.expect(d, "k")
		k.await(d, "", time.Hour, jobs.Awaited{})
		k.answer("k", jobs.Accepted)
		// The next attempt's message waits in the broker for longer than the deferral does.
		k.must(k.Next(k.Context(), k.claim(jobs.DeferralAnswered), time.Time{}))
		time.Sleep(24 * time.Hour)
		k.must(k.End(k.Context(), k.claim(jobs.DeferralLost)))
		k.deferred(d, true)
		next := attemptOf("t1", 1)
		k.deferred(next, false)
		k.expect(next, "k")
		k.await(next, "", time.Hour, jobs.Awaited{})
	})
}

// What an attempt left open is dropped by a later one, also by one whose message was put back in between.
func TestDeferralIsDroppedLater(t *testing.T) {
	bubble(t, func(w *world) {
		k := deferrals(w)
		k.await(attemptOf("t1", 0), "k", 0, jobs.Awaited{})
		k.must(k.Next(k.Context(), k.claim(jobs.DeferralTimedOut), time.Time{}))
		k.must(k.Drop(k.Context(), attemptOf("t1", 2)))
		k.answer("k", jobs.Early)
		k.await(attemptOf("t2", 0), "k", time.Hour, jobs.Awaited{Answered: true})
		k.must(k.Drop(k.Context(), attemptOf("t2", 1))) // it is deferred
		k.must(k.End(k.Context(), k.claim(jobs.DeferralAnswered)))
	})
}

func TestDeferralsAreChecked(t *testing.T) {
	w := newWorld(t, false, jobs.Config{})
	k := deferrals(w)
	large := attemptOf("t1", 0)
	large.Data = make([]byte, jobs.MaxData+1)
	for name, err := range map[string]error{
		"no key":       k.Deferrals.Expect(t.Context(), attemptOf("t1", 0), ""),
		"a long key":   k.Deferrals.Expect(t.Context(), attemptOf("t1", 0), string(make([]byte, jobs.MaxKey+1))),
		"large":        k.Deferrals.Expect(t.Context(), large, "k"),
		"never a key":  second(k.Deferrals.Await(t.Context(), attemptOf("t1", 0), "", time.Hour)),
		"a broken key": second(k.Deferrals.Await(t.Context(), attemptOf("t1", 0), "a\x00", time.Hour)),
	} {
		if !errors.Is(err, jobs.ErrBadJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.idle(24 * time.Hour)
}

func second[T any](_ T, err error) error { return err }

// Each of many attempts is awaited, answered and claimed once, whoever does what.
func TestDeferralsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := deferrals(newWorld(t, false, jobs.Config{}))
		const tasks = 50
		var mu sync.Mutex
		claimed := map[string]int{}
		var working sync.WaitGroup
		for n := range 2 {
			working.Go(func() {
				for i := range tasks {
					d := attemptOf(fmt.Sprint("t", i), 0)
					if _, err := k.Deferrals.Await(t.Context(), d, fmt.Sprint(i), time.Hour); err != nil && !errors.Is(err, jobs.ErrStale) {
						t.Error(err)
					}
					if _, err := k.Complete(context.Background(), "ask", fmt.Sprint(i), i); err != nil {
						t.Error(err)
					}
					got, err := k.Claim(t.Context(), []string{"q"}, 1+n, keptLease)
					if err != nil {
						t.Error(err)
					}
					for i := range got.Claimed {
						c := &got.Claimed[i]
						mu.Lock()
						claimed[string(c.Data)]++
						mu.Unlock()
						if err := k.End(t.Context(), c); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		working.Wait()
		if len(claimed) != tasks {
			t.Errorf("%d of %d were claimed", len(claimed), tasks)
		}
		for data, n := range claimed {
			if n != 1 {
				t.Errorf("%s was claimed %d times", data, n)
			}
		}
	})
}
