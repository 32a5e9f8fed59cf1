package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a service over a store in memory.
type world struct {
	*testing.T
	*jobs.Service
	store jobs.Store
}

// bubble runs fn in synctest bubbles whose clock starts at midnight in the year 2000. The first
// store implements Taker and Dropper, the second one does not.
func bubble(t *testing.T, fn func(w *world)) {
	t.Helper()
	for name, plain := range map[string]bool{"steps": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fn(newWorld(t, plain, jobs.Config{})) })
		})
	}
}

func newWorld(t *testing.T, plain bool, c jobs.Config) *world {
	t.Helper()
	store := openMem(t)
	if plain {
		store = plainStore{store}
	}
	c.Store = store
	s, err := jobs.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := store.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &world{t, s, store}
}

// plainStore hides the optional methods of a store.
type plainStore struct{ jobs.Store }

type plainTx struct{ jobstore.Tx }

func (p plainStore) Single(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return p.Store.Single(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, plainTx{tx}) })
}

func (p plainStore) Update(ctx context.Context, fn func(context.Context, jobstore.Tx) error) error {
	return p.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error { return fn(ctx, plainTx{tx}) })
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// is checks that err wraps want, or that both are nil.
func (w *world) is(err, want error) {
	w.Helper()
	if !errors.Is(err, want) || (want == nil) != (err == nil) {
		w.Fatalf("got the error %v, want %v", err, want)
	}
}

func (w *world) create(spec jobs.Spec) jobs.ID {
	w.Helper()
	c, err := w.Create(w.Context(), spec)
	w.ok(err)
	return c.ID
}

// get claims one job of a name.
func (w *world) get(name string) jobs.Handout {
	w.Helper()
	out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{name}}})
	w.ok(err)
	if len(out) != 1 {
		w.Fatalf("%d jobs", len(out))
	}
	return out[0]
}

// none checks that no job of a name is due.
func (w *world) none(name string) {
	w.Helper()
	out, err := w.Get(w.Context(), jobs.Request{Selector: jobs.Selector{Names: []string{name}}})
	if !errors.Is(err, jobs.ErrNoJob) {
		w.Fatalf("got %+v, %v", out, err)
	}
}

func (w *world) job(id jobs.ID) jobs.Row {
	w.Helper()
	j, err := w.Row(w.Context(), id)
	w.ok(err)
	return j
}

// state checks the states of jobs; "" means that the job does not exist.
func (w *world) state(want jobs.State, ids ...jobs.ID) {
	w.Helper()
	for _, id := range ids {
		j, err := w.Query(w.Context(), id)
		if want == "" && !errors.Is(err, jobs.ErrNotFound) || want != "" && (err != nil || j.State != want) {
			w.Fatalf("job %d is %q, want %q (%v)", id, j.State, want, err)
		}
	}
}

func (w *world) data(id jobs.ID, want string) {
	w.Helper()
	if got := string(w.job(id).Data); got != want {
		w.Fatalf("the data of job %d are %s, want %s", id, got, want)
	}
}

func (w *world) finish(id jobs.ID) {
	w.Helper()
	w.ok(w.Finish(w.Context(), jobs.Finish{ID: id}))
}

// next checks the NextRun of a job.
func (w *world) next(id jobs.ID, want string) {
	w.Helper()
	if got := w.job(id).NextRun.Format(time.RFC3339Nano); got != want {
		w.Fatalf("job %d runs next at %s, want %s", id, got, want)
	}
}

func openMem(t *testing.T) jobs.Store {
	t.Helper()
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// bad checks that err is a FieldError for a field.
func (w *world) bad(err error, field string) {
	w.Helper()
	var f *jobs.FieldError
	if !errors.As(err, &f) || f.Field != field || !errors.Is(err, jobs.ErrBadJob) || f.Error() == "" {
		w.Fatalf("got the error %v, want one about %s", err, field)
	}
}

func second[T any](_ T, err error) error { return err }
