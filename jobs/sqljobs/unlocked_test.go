package sqljobs_test

import (
	"context"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// meanwhile wraps a store. turn runs once, right after an Update has read a list of a key or a
// name.
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

func (l listedTx) Named(ctx context.Context, name string, p jobstore.Page) ([]jobstore.Row, error) {
	found, err := l.Tx.Named(ctx, name, p)
	l.turn()
	return found, err
}

func (l listedTx) OfKey(ctx context.Context, name, key string, p jobstore.Page) ([]jobstore.Row, error) {
	found, err := l.Tx.OfKey(ctx, name, key, p)
	if len(found) > 0 {
		l.turn()
	}
	return found, err
}

// TestUniqueBesideItsEnd: a job with a key ends while a unique job of its name is created. The old job
// is kept and over, so that the new one is created.
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

// TestAnswerBesideDelete: an answer whose job is deleted meanwhile is kept as an early one, not
// refused.
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
