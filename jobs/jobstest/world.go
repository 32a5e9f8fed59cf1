package jobstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// world is the environment of a case: a database, its open stores, and limited waits.
type world struct {
	*suite.World[jobs.Store]
	h *Harness
}

// newWorld returns the environment of a case over the database of h.
func newWorld(t testing.TB, h *Harness) *world {
	return &world{h: h, World: suite.NewWorld(t, suite.Config[jobs.Store]{
		Port: "Store", Open: h.Open, Secret: h.Secret, Quiet: h.Slack, Patience: h.Patience,
	})}
}

// txFunc is the function of a transaction.
type txFunc = func(ctx context.Context, tx jobstore.Tx) error

// update runs fn in a transaction and commits it. An error fails the case at once.
func (w *world) update(s jobs.Store, fn txFunc) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.Update(ctx, fn), "Update")
}

// view runs fn in a View. An error fails the case at once.
func (w *world) view(s jobs.Store, fn txFunc) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	w.Must(s.View(ctx, fn), "View")
}

// now returns the store's time, read in a View.
func (w *world) now(s jobs.Store) (now time.Time) {
	w.Helper()
	w.view(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
		now, err = tx.Now(ctx)
		return err
	})
	return now
}

// job returns a QUEUED job that has been due for a second by the store's clock, changed by edits.
// It saves nothing.
func (w *world) job(s jobs.Store, name string, edits ...func(*jobs.Row)) jobs.Row {
	w.Helper()
	now := w.now(s)
	j := jobs.Row{Job: jobs.Job{Name: name, State: jobs.Queued, Priority: jobs.DefaultPriority, Data: []byte(`{}`), Created: now, Changed: now, NextRun: now.Add(-time.Second)}, Due: now.Add(-time.Second)}
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

// save writes jobs in one transaction and returns them with their ids. It does not change list. An
// error fails the case at once.
func (w *world) save(s jobs.Store, list ...jobs.Row) (saved []jobs.Row) {
	w.Helper()
	w.update(s, func(ctx context.Context, tx jobstore.Tx) error {
		saved = slices.Clone(list) // fn may run again
		return tx.Save(ctx, pointers(saved)...)
	})
	return saved
}

// add saves one new job (see job) and returns it with its id.
func (w *world) add(s jobs.Store, name string, edits ...func(*jobs.Row)) jobs.Row {
	w.Helper()
	return w.save(s, w.job(s, name, edits...))[0]
}

// pointers returns pointers to the elements of list, in order.
func pointers(list []jobs.Row) []*jobs.Row {
	out := make([]*jobs.Row, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// edit changes an existing job by how, in a transaction of its own. An error fails the case at
// once.
func (w *world) edit(s jobs.Store, id jobs.ID, how func(*jobs.Row)) {
	w.Helper()
	w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return edit(ctx, tx, id, how) })
}

// edit reads a job in tx, calls how with it, and saves it. Returns errors of tx, such as
// ErrNotFound.
func edit(ctx context.Context, tx jobstore.Tx, id jobs.ID, how func(*jobs.Row)) error {
	j, err := tx.Get(ctx, id)
	if err != nil {
		return err
	}
	how(&j)
	return tx.Save(ctx, &j)
}

// get returns an existing job, read in a View. A missing job fails the case at once.
func (w *world) get(s jobs.Store, id jobs.ID) (j jobs.Row) {
	w.Helper()
	w.view(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
		j, err = tx.Get(ctx, id)
		return err
	})
	return j
}

// gone fails the case, which continues, if a job has this id. format and args name the job.
func (w *world) gone(s jobs.Store, id jobs.ID, format string, args ...any) {
	w.Helper()
	ctx, cancel := w.Ctx()
	defer cancel()
	err := s.View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
		_, err := tx.Get(ctx, id)
		return err
	})
	w.WantIs(err, jobs.ErrNotFound, "Get of %s", fmt.Sprintf(format, args...))
}

// find returns the jobs of a Query, read in a View. An error fails the case at once.
func (w *world) find(s jobs.Store, q Query) (found []jobs.Row) {
	w.Helper()
	w.view(s, func(ctx context.Context, tx jobstore.Tx) (err error) {
		found, err = q.Find(ctx, tx)
		return err
	})
	return found
}

// wantIDs fails the case, which continues, unless found has the ids of want in this order. It
// compares no other field.
func (w *world) wantIDs(found []jobs.Row, want []jobs.Row, format string, args ...any) {
	w.Helper()
	if diff := cmp.Diff(ids(want), ids(found)); diff != "" {
		w.Errorf("%s: other ids (-want +got):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// ids returns the ids of jobs, in order.
func ids(list []jobs.Row) []jobs.ID {
	out := make([]jobs.ID, len(list))
	for i := range list {
		out[i] = list[i].ID
	}
	return out
}

// wantSame fails the case, which continues, unless all fields of two jobs are equal and the times
// of got are in UTC.
func (w *world) wantSame(got, want jobs.Row, format string, args ...any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s: not as it was saved (-want +got):\n%s", fmt.Sprintf(format, args...), diff)
	}
	for _, at := range []time.Time{got.Created, got.Changed, got.NextRun, got.LastRun, got.Scheduled, got.Due, got.Deadline, got.Expires} {
		if at.Location() != time.UTC {
			w.Errorf("%s: the time %v is not in UTC", fmt.Sprintf(format, args...), at)
		}
	}
}

// all calls fn with 0 to n-1, each in a goroutine of its own, and waits for all of them.
func all(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// try runs fn in a transaction and reports whether it was committed. Otherwise the case fails and
// continues. It may be called from any goroutine.
func (w *world) try(s jobs.Store, fn txFunc) bool {
	ctx, cancel := w.Ctx()
	defer cancel()
	if err := w.Clean(s.Update(ctx, fn)); err != nil {
		w.Errorf("Update: %v", err)
		return false
	}
	return true
}

// due returns the query for the first due jobs without a queue whose name matches a pattern, at
// most limit.
func due(pattern string, limit int) Query {
	return Query{Page: jobstore.Page{Limit: limit}, Due: &jobs.Due{Selector: jobs.Selector{Pattern: pattern}}}
}
