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

// TestDeadlocksAreRare: four processes give commands of all kinds for the same few keys, sequences
// and jobs, and purge meanwhile. No command fails.
//
// PostgreSQL may find a deadlock in one of 400 commands. The store then runs the transaction again.
// The end of a job of a sequence locks the next job after it, which may have a lower id. A command
// for several jobs locks them by their ids.
func TestDeadlocksAreRare(t *testing.T) {
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
		service, err := jobs.New(jobs.Config{Store: store, Keep: time.Millisecond, EarlyFor: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() error { return errors.Join(service.Close(bound(t)), store.Close(bound(t))) })
		waiting, err := deferrals.New(deferrals.Config{Jobs: service, Keep: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for m := range 4 {
			h := &hostile{s: service, d: waiting, r: rand.New(rand.NewPCG(uint64(n), uint64(m)))}
			all.Go(func() {
				for range calls / 16 {
					err := h.command(bound(t))
					for _, expected := range []error{nil, jobs.ErrState, jobs.ErrNotFound, jobs.ErrNoJob, jobs.ErrStale, jobs.ErrBadJob, deferral.ErrStale, deferral.ErrRefused} {
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
	for _, end := range ends { // what a session has seen is counted when it ends
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	if deadlocks := deadlocksOf(t, conn); deadlocks > int64(calls/400) {
		t.Errorf("%d deadlocks in %d calls", deadlocks, calls)
	}
}

// hostile gives commands for what others are at.
type hostile struct {
	s    *jobs.Service
	d    *deferrals.Store
	r    *rand.Rand
	held []*jobs.Row
}

func (h *hostile) key() string { return fmt.Sprint("k", h.r.IntN(4)) }

// some are ids of jobs that there may be, in any order.
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
