package sqljobs_test

import (
	"context"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// meanwhile wraps a store. turn runs once, directly after an Update has looked up a key or a name
// that has a job.
func meanwhile(s jobs.Store, turn func()) jobs.Store {
	return &listed{Store: s, turn: sync.OnceFunc(turn)}
}

type listed struct {
	jobs.Store
	turn func()
}

func (l *listed) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return l.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, listedTx{tx, l.turn}) })
}

type listedTx struct {
	jobstore.Tx
	turn func()
}

func (l listedTx) First(ctx context.Context, states []jobstore.State, groups ...jobstore.Group) (map[jobstore.Group]jobstore.ID, error) {
	found, err := l.Tx.First(ctx, states, groups...)
	if len(found) > 0 {
		l.turn()
	}
	return found, err
}

// TestUniqueBesideItsEnd shows that a unique job is created if the old job with its name ends at
// the same time. The old job remains stored as finished.
func TestUniqueBesideItsEnd(t *testing.T) {
	dsn := postgresURL(t)
	other := serviceOf(t, open(t, dsn))
	if _, err := other.Create(bound(t), jobs.Spec{Name: "work", Unique: true}); err != nil {
		t.Fatal(err)
	}
	got, err := other.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Pattern: "*"}})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d jobs were claimed, %v", len(got), err)
	}
	if err := other.Expect(bound(t), jobs.Expect{ID: got[0].ID, Token: got[0].Token, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	s := serviceOf(t, meanwhile(open(t, dsn), func() {
		if err := other.Finish(bound(t), jobs.Finish{ID: got[0].ID, Token: got[0].Token}); err != nil {
			t.Error(err)
		}
	}))
	made, err := s.Create(bound(t), jobs.Spec{Name: "work", Unique: true, Data: []byte(`{"new":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if made.Existed || made.ID == got[0].ID {
		j, err := other.Query(bound(t), made.ID)
		t.Errorf("the new job was merged into job %d, which is %s: %s, %v", made.ID, j.State, j.Data, err)
	}
}

// TestAnswerBesideDelete shows that an answer is stored as an early answer, and not refused, if its
// job is deleted at the same time.
func TestAnswerBesideDelete(t *testing.T) {
	dsn := postgresURL(t)
	other := serviceOf(t, open(t, dsn))
	if _, err := other.Create(bound(t), jobs.Spec{Name: "work", SequenceKey: "s", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	got, err := other.Get(bound(t), jobs.Request{Selector: jobstore.Selector{Pattern: "*"}})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d jobs were claimed, %v", len(got), err)
	}
	if err := other.Retry(bound(t), jobs.Retry{ID: got[0].ID, Token: got[0].Token}); err != nil {
		t.Fatal(err)
	}
	s := serviceOf(t, meanwhile(open(t, dsn), func() {
		if err := other.Delete(bound(t), got[0].ID); err != nil {
			t.Error(err)
		}
	}))
	receipt, err := s.Complete(bound(t), "work", "k", 1)
	if err != nil || receipt.Kind != jobs.Early {
		t.Errorf("the answer is %+v, %v", receipt, err)
	}
}
