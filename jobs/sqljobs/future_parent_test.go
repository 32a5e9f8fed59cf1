package sqljobs_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// afterLock wraps a store. turn runs once, directly after an Update has locked jobs by their ids.
// first is the number of calls of First; more than 100 are an error.
type afterLock struct {
	jobs.Store
	turn  func()
	first int
}

func (a *afterLock) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return a.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, afterLockTx{tx, a}) })
}

type afterLockTx struct {
	jobstore.Tx
	a *afterLock
}

func (t afterLockTx) Jobs(ctx context.Context, ids ...jobs.ID) ([]jobs.Row, error) {
	defer t.a.turn()
	return t.Tx.Jobs(ctx, ids...)
}

func (t afterLockTx) First(ctx context.Context, states []jobstore.State, groups ...jobstore.Group) (map[jobstore.Group]jobs.ID, error) {
	if t.a.first++; t.a.first > 100 {
		return nil, errors.New("First is called without end")
	}
	return t.Tx.First(ctx, states, groups...)
}

// TestParentThatComesLater shows that CreateAll ends if its unique job is created meanwhile, with
// the id of a parent that did not exist before.
func TestParentThatComesLater(t *testing.T) {
	for _, c := range []struct {
		what    string
		parents []int // added to the id of the running parent
	}{
		{"the highest id", []int{0, 1}},
		{"a lower id", []int{0, 1, 2}},
	} {
		t.Run(c.what, func(t *testing.T) {
			dsn := postgresURL(t)
			other := serviceOf(t, open(t, dsn))
			p, err := other.Create(bound(t), jobs.Spec{Name: "p"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Pattern: "p"}}); err != nil {
				t.Fatal(err)
			}
			store := &afterLock{Store: open(t, dsn)}
			var x jobs.Created
			store.turn = sync.OnceFunc(func() {
				if x, err = other.Create(bound(t), jobs.Spec{Name: "x"}); err != nil {
					t.Error(err)
				}
			})
			specs := []jobs.Spec{{Name: "x", Unique: true}}
			for _, n := range c.parents {
				specs = append(specs, jobs.Spec{Name: "c", Parent: p.ID + jobs.ID(n)})
			}
			_, err = serviceOf(t, store).CreateAll(bound(t), specs)
			if !errors.Is(err, jobs.ErrParentState) || x.ID != p.ID+1 {
				t.Errorf("CreateAll: %v after %d calls of First; the unique job is %d, the parent %d", err, store.first, x.ID, p.ID)
			}
		})
	}
}
