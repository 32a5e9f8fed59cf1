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

// kinds is a store that reports locks of a kind that a transaction takes in more than one call.
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

// TestOneCallForEachKindOfLock: names of a kind are locked by one call, as jobstore.Tx.Lock asks.
// A store may lock very many of them as all of their kind. Two transactions that have locked a few
// before would then wait for each other.
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
