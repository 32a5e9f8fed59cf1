package sqljobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestNoDeadlocks shows that no command fails and PostgreSQL finds no deadlock. Four processes run
// commands of all kinds on the same few keys, sequences and jobs, and purge at the same time. A
// call about several jobs may return ErrHeld, since others can hold their locks for seconds.
func TestNoDeadlocks(t *testing.T) {
	dsn := ownDatabase(t)
	conn := watching(t, dsn)
	calls := 2000
	if testserver.IsThorough() {
		calls = 20_000
	}
	var all sync.WaitGroup
	var ends []func() error
	for n := range 4 {
		store := open(t, dsn)
		service, err := jobs.New(jobs.Config{Store: store, Retention: time.Millisecond, EarlyFor: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() error { return errors.Join(service.Close(bound(t)), store.Close(bound(t))) })
		waiting, err := deferrals.New(deferrals.Config{Jobs: service, Retention: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for m := range 4 {
			h := &hostile{s: service, d: waiting, r: rand.New(rand.NewPCG(uint64(n), uint64(m)))}
			all.Go(func() {
				for range calls / 16 {
					err := h.command(bound(t))
					for _, expected := range []error{nil, jobs.ErrState, jobs.ErrNotFound, jobs.ErrNoJob, jobs.ErrStale, jobs.ErrBadJob, jobs.ErrHeld, deferral.ErrStale, deferral.ErrRefused} {
						if errors.Is(err, expected) {
							err = nil
						}
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for _, end := range ends { // the server counts a session's deadlocks when the session ends
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if deadlocks := deadlocksOf(t, conn); deadlocks > 0 {
		t.Errorf("%d deadlocks in %d calls", deadlocks, calls)
	}
}

// TestTurnsAreGivenInOrder shows that the end of a job does not cause a deadlock. It makes a job of
// the same sequence with a lower id runnable. Another transaction locks both in the order of ids.
func TestTurnsAreGivenInOrder(t *testing.T) {
	dsn := ownDatabase(t)
	conn := watching(t, dsn)
	other, store := open(t, dsn), open(t, dsn)
	s := serviceOf(t, other)
	made, err := s.CreateAll(bound(t), []jobs.Spec{{Name: "work", SequenceKey: "s"}, {Name: "work", SequenceKey: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	first, second := made[0].ID, made[1].ID
	if err := errors.Join(s.Withdraw(bound(t), first), s.Requeue(bound(t), []jobs.ID{first}, "")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Pattern: "*"}})
	if err != nil || len(got) != 1 || got[0].ID != second {
		t.Fatalf("claimed %+v, %v, not job %d", got, err, second)
	}
	locks := make(chan error, 1)
	end := serviceOf(t, meanwhile(store, func() { lockBoth(t, other, first, second, locks) }))
	if err := errors.Join(end.Finish(bound(t), jobs.Finish{ID: second}), <-locks); err != nil {
		t.Fatal(err)
	}
	if j, err := s.Query(bound(t), first); err != nil || j.State != jobs.Queued {
		t.Errorf("job %d is %s, %v", first, j.State, err)
	}
	// the server counts a session's deadlocks when the session ends
	if err := errors.Join(end.Close(bound(t)), s.Close(bound(t)), store.Close(bound(t)), other.Close(bound(t))); err != nil {
		t.Fatal(err)
	}
	if n := deadlocksOf(t, conn); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// lockBoth locks two jobs in this order, in a goroutine, and sends the result to ended. It returns
// when the first is locked. It ignores a job that does not exist.
func lockBoth(t *testing.T, s jobstore.Store, first, second jobs.ID, ended chan<- error) {
	locked := make(chan struct{}, 1)
	go func() {
		ended <- s.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
			_, err := tx.Get(ctx, first)
			if err == nil {
				select {
				case locked <- struct{}{}:
				default: // a second run, after a deadlock
				}
				_, err = tx.Get(ctx, second)
			}
			if errors.Is(err, jobs.ErrNotFound) {
				err = nil
			}
			return err
		})
	}()
	<-locked
}

// TestTurnOfAJobGivenUp is TestTurnsAreGivenInOrder for a job that RetryAfter gives up during a
// claim.
func TestTurnOfAJobGivenUp(t *testing.T) {
	dsn := ownDatabase(t)
	conn := watching(t, dsn)
	other, store := open(t, dsn), open(t, dsn)
	s := serviceOf(t, other)
	made, err := s.CreateAll(bound(t), []jobs.Spec{{Name: "work", SequenceKey: "s"}, {Name: "work", SequenceKey: "s", RetryAfter: "+1 SECOND"}})
	if err != nil {
		t.Fatal(err)
	}
	first, second := made[0].ID, made[1].ID
	if err := errors.Join(s.Withdraw(bound(t), first), s.Requeue(bound(t), []jobs.ID{first}, "")); err != nil {
		t.Fatal(err)
	}
	// ten claims later
	if err := other.Update(bound(t), func(ctx context.Context, tx jobstore.Tx) error {
		j, err := tx.Get(ctx, second)
		if err != nil {
			return err
		}
		j.State, j.Handouts, j.Due, j.Token = jobs.RunQueued, 10, time.Now().Add(-time.Second), 10
		return tx.Save(ctx, &j)
	}); err != nil {
		t.Fatal(err)
	}
	locks := make(chan error, 1)
	end := serviceOf(t, meanwhile(store, func() { lockBoth(t, other, first, second, locks) }))
	got, err := end.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Pattern: "*"}})
	if err := errors.Join(err, <-locks); err != nil || len(got) != 1 || got[0].ID != second || !got[0].GivenUp {
		t.Errorf("claimed %+v, %v", got, err)
	}
	if j, err := s.Query(bound(t), first); err != nil || j.State != jobs.Queued {
		t.Errorf("job %d is %s, %v", first, j.State, err)
	}
	if err := errors.Join(end.Close(bound(t)), s.Close(bound(t)), store.Close(bound(t)), other.Close(bound(t))); err != nil {
		t.Fatal(err)
	}
	if n := deadlocksOf(t, conn); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// hostile runs commands on the jobs that other callers use.
type hostile struct {
	s    *jobs.Service
	d    *deferrals.Store
	r    *rand.Rand
	held []*jobs.Row
}

func (h *hostile) key() string { return fmt.Sprint("k", h.r.IntN(4)) }

// some returns ids of jobs that may exist, in random order.
func (h *hostile) some(ctx context.Context) []jobs.ID {
	all, _ := h.s.Rows(ctx, jobs.Filter{Limit: 50})
	ids := []jobs.ID{1}
	for _, i := range h.r.Perm(len(all))[:min(len(all), 4)] {
		ids = append(ids, all[i].ID)
	}
	return ids
}

func (h *hostile) specs() []jobs.Spec {
	specs := make([]jobs.Spec, 1+h.r.IntN(4))
	for i := range specs {
		specs[i] = jobs.Spec{Name: "n", SequenceKey: h.key(), Key: fmt.Sprint(h.key(), i), UniqueKey: fmt.Sprint(h.key(), i)}
	}
	return specs
}

func (h *hostile) command(ctx context.Context) error {
	id := func() jobs.ID { ids := h.some(ctx); return ids[len(ids)-1] }
	a := deferral.Attempt{Queue: "q", Name: "n", Task: task.ID(h.key()), State: []byte("{}")}
	switch h.r.IntN(12) {
	case 0, 1:
		_, err := h.s.CreateAll(ctx, h.specs())
		return err
	case 2:
		_, err := h.s.Create(ctx, jobs.Spec{Name: "n", Key: h.key() + "0"})
		return err
	case 3, 4:
		out, err := h.s.Get(ctx, jobs.Request{Selector: jobstore.Selector{Pattern: "*"}, Max: 4, Lease: time.Minute})
		for i := range out {
			h.held = append(h.held, &out[i].Row)
		}
		return err
	case 5:
		if len(h.held) == 0 {
			return nil
		}
		_, _, err := h.s.RenewAll(ctx, h.held, time.Minute)
		if len(h.held) > 20 {
			h.held = h.held[10:]
		}
		return err
	case 6:
		return h.s.Finish(ctx, jobs.Finish{ID: id()})
	case 7:
		return h.s.Requeue(ctx, h.some(ctx), "")
	case 8:
		answers := make([]jobs.Answer, 3)
		for i := range answers {
			answers[i] = jobs.Answer{Name: "n", Key: fmt.Sprint(h.key(), h.r.IntN(4))}
		}
		_, err := h.s.AnswerAll(ctx, answers)
		return err
	case 9:
		_, err := h.s.Purge(ctx)
		return err
	case 10:
		_, err := h.d.Defer(ctx, a, h.key()+"1", time.Second)
		return err
	default:
		return errors.Join(h.s.Withdraw(ctx, id()), h.d.Drop(ctx, a))
	}
}
