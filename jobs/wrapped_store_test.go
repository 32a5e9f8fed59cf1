package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// inserting is a store with Insert, as one that saves round trips.
type inserting struct {
	jobs.Store
	inserts int
}

func (s *inserting) Insert(ctx context.Context, draft func(now time.Time) []*jobstore.Row) error {
	s.inserts++
	return s.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		return errors.Join(err, tx.Save(ctx, draft(now)...))
	})
}

// wrapper hides the methods of its store that are not in the port, as the stores of package open
// do.
type wrapper struct{ jobs.Store }

func (w wrapper) Unwrap() any { return w.Store }

// TestWrappedStoreInserts shows that a service finds Insert behind a wrapper.
func TestWrappedStoreInserts(t *testing.T) {
	mem, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store := &inserting{Store: mem}
	defer store.Close(t.Context())
	s, err := jobs.New(jobs.Config{Store: wrapper{store}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), jobs.Spec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if store.inserts != 1 {
		t.Errorf("Create called Insert %d times, want 1", store.inserts)
	}
}
