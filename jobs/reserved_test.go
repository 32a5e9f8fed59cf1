package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

// TestReserved: who guesses the id of a record that is nobody's job, such as the lease of a queue, can neither change nor end it.
func TestReserved(t *testing.T) {
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	rec := jobs.Job{
		Name: "q", State: jobs.Running, Queue: "swarmiji.queues", Data: []byte("{}"), Created: now, Changed: now, NextRun: now, Due: now.Add(time.Minute), Token: 3,
	}
	if err := store.Update(t.Context(), func(ctx context.Context, tx jobs.Tx) error { return tx.Save(ctx, &rec) }); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(ctx context.Context) error{
		"Update":   func(ctx context.Context) error { return s.Update(ctx, jobs.Update{ID: rec.ID, Data: []byte("{}")}) },
		"Finish":   func(ctx context.Context) error { return s.Finish(ctx, jobs.Finish{ID: rec.ID}) },
		"Fail":     func(ctx context.Context) error { return s.Fail(ctx, jobs.Fail{ID: rec.ID}) },
		"Retry":    func(ctx context.Context) error { return s.Retry(ctx, jobs.Retry{ID: rec.ID}) },
		"Delete":   func(ctx context.Context) error { return s.Delete(ctx, rec.ID) },
		"Cancel":   func(ctx context.Context) error { return s.Cancel(ctx, rec.ID) },
		"Withdraw": func(ctx context.Context) error { return s.Withdraw(ctx, rec.ID) },
		"Renew":    func(ctx context.Context) error { return s.Renew(ctx, rec.ID, 0, time.Hour) },
		"Expect":   func(ctx context.Context) error { return s.Expect(ctx, rec.ID, 0, "k") },
		"Await":    func(ctx context.Context) error { _, err := s.Await(ctx, jobs.Await{ID: rec.ID, Key: "k"}); return err },
		"Requeue":  func(ctx context.Context) error { return s.Requeue(ctx, []jobs.ID{rec.ID}, "") },
	} {
		if err := do(t.Context()); !errors.Is(err, jobs.ErrReserved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Create(t.Context(), jobs.Spec{Name: "child", Parent: rec.ID}); !errors.Is(err, jobs.ErrParentNotFound) {
		t.Errorf("a child of it: %v", err)
	}
	is, err := s.Query(t.Context(), rec.ID)
	if err != nil || !cmp.Equal(is, rec) || !is.Reserved() {
		t.Errorf("%v; %s", err, cmp.Diff(rec, is))
	}
}
