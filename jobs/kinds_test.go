package jobs_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// kinds is a store that fails the test if a transaction locks names of one kind in more than one
// call.
type kinds struct {
	jobs.Store
	t *testing.T
}

func (k kinds) Update(ctx context.Context, fn func(ctx context.Context, tx jobstore.Tx) error) error {
	return k.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		return fn(ctx, &kindsTx{Tx: tx, t: k.t, seen: map[string][]string{}})
	})
}

type kindsTx struct {
	jobstore.Tx
	t    *testing.T
	seen map[string][]string
}

func (k *kindsTx) Lock(ctx context.Context, names ...string) error {
	var now []string
	for _, name := range names {
		if kind, _, _ := strings.Cut(name, " "); !slices.Contains(now, kind) {
			now = append(now, kind)
		}
	}
	for _, kind := range now {
		if before := k.seen[kind]; before != nil {
			k.t.Errorf("names of the kind %q are locked by two calls: %q and %q", kind, before, names)
		}
		k.seen[kind] = names
	}
	return k.Tx.Lock(ctx, names...)
}

// TestOneCallForEachKindOfLock shows that one call locks all names of a kind, as jobstore.Tx.Lock
// requires. A store may lock a whole kind instead of very many names. Two transactions with
// separate calls could then deadlock.
func TestOneCallForEachKindOfLock(t *testing.T) {
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: kinds{store, t}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	if _, err := s.CreateAll(t.Context(), []jobs.Spec{
		{Name: "one", Unique: true},
		{Name: "two", UniqueKey: "u", SequenceKey: "s"},
		{Name: "three", Key: "k"},
	}); err != nil {
		t.Fatal(err)
	}
}
