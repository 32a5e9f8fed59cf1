package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/when"
)

// inQueue runs fn in a synctest bubble with a store in memory.
func inQueue(t *testing.T, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(newWorld(t, false, jobs.Config{})) })
}

// enqueue saves a job in the queue "q" and sets defaults for unset fields.
func (w *world) enqueue(j jobs.Row) jobs.ID {
	w.Helper()
	w.ok(w.store.Update(w.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		n := j
		n.Created, n.Changed = now, now
		if n.NextRun.IsZero() {
			n.NextRun = now
		}
		if n.Queue == "" {
			n.Queue = "q"
		}
		if n.Name == "" {
			n.Name = "job"
		}
		if n.Data == nil {
			n.Data = []byte("{}")
		}
		n.State, n.Due = jobs.Queued, n.NextRun
		err = tx.Save(ctx, &n)
		j.ID = n.ID
		return err
	}))
	return j.ID
}

// enqueued saves a job with a name and a weight.
func (w *world) enqueued(name string, weight int64) jobs.ID {
	w.Helper()
	return w.enqueue(jobs.Row{Job: jobs.Job{Name: name, Weight: weight, Priority: jobs.DefaultPriority}})
}

// over ends jobs in the store.
func (w *world) over(ids ...jobs.ID) {
	w.Helper()
	for _, id := range ids {
		w.modify(id, func(j *jobs.Row) { j.State, j.Phase, j.Due, j.Deadline = jobs.Finished, "", time.Time{}, time.Time{} })
	}
}

func (w *world) modify(id jobs.ID, fn func(*jobs.Row)) {
	w.Helper()
	w.ok(w.store.Update(w.Context(), func(ctx context.Context, tx jobstore.Tx) error {
		j, err := tx.Get(ctx, id)
		if err != nil {
			return err
		}
		fn(&j)
		return tx.Save(ctx, &j)
	}))
}

// lead starts a leader of a queue until the test ends. Reported errors fail the test.
func (w *world) lead(q queue.Queue, node string) *leader {
	w.Helper()
	return w.leadWith(q, node, nil, func(err error) { w.Errorf("reported: %v", err) })
}

func (w *world) leadWith(q queue.Queue, node string, begin func(*jobs.Row) error, report func(error)) *leader {
	w.Helper()
	if q.Name == "" {
		q.Name = "q"
	}
	l, err := w.NewLeader(queue.LeaderConfig{Queue: q, Node: node, Lease: 30 * time.Second, Begin: begin, Report: report})
	w.ok(err)
	kept := keep(l)
	w.Cleanup(func() { kept.Close(context.Background()) })
	return kept
}

// within returns the jobs that a leader claims until it claims none for a time.
func (w *world) within(l *leader, d time.Duration) (out []jobs.Handout) {
	w.Helper()
	for {
		ctx, cancel := context.WithTimeout(w.Context(), d)
		got, err := l.Next(ctx, 1000)
		ended := ctx.Err() != nil
		cancel()
		out = append(out, got...)
		if err != nil {
			if !ended || !errors.Is(err, jobs.ErrUnavailable) {
				w.Fatalf("next: %v", err)
			}
			return out
		}
	}
}

// first returns the first jobs that a leader claims within a time.
func (w *world) first(l *leader, d time.Duration) []jobs.Handout {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), d)
	defer cancel()
	got, err := l.Next(ctx, 1000)
	if err != nil && (ctx.Err() == nil || !errors.Is(err, jobs.ErrUnavailable)) {
		w.Fatalf("next: %v", err)
	}
	return got
}

// now returns the jobs that a leader claims at once.
func (w *world) now(l *leader) []jobs.Handout {
	w.Helper()
	return w.within(l, time.Second)
}

// starts checks the names of the jobs that a leader claims at once.
func (w *world) starts(l *leader, want ...string) []jobs.Handout {
	w.Helper()
	got := w.now(l)
	if is := namesOf(got); !slices.Equal(is, want) {
		w.Fatalf("started %v, want %v", is, want)
	}
	return got
}

func namesOf(out []jobs.Handout) []string {
	var names []string
	for i := range out {
		names = append(names, out[i].Name)
	}
	return names
}

// times returns a list with n copies of a name.
func times(n int, name string) []string { return slices.Repeat([]string{name}, n) }

// shareOf returns the part of a name before the first point.
func shareOf(j jobs.Job) string {
	share, _, _ := strings.Cut(j.Name, ".")
	return share
}

func diffJobs(want, got jobs.Row) string { return cmp.Diff(want, got) }

func mustWindows(t *testing.T, text string, loc *time.Location) *when.Windows {
	t.Helper()
	w, err := when.ParseWindows(text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// leader is a leader whose lease is renewed until Die or Close.
type leader struct {
	*queue.Leader
	end  context.CancelFunc
	done chan struct{}
}

func keep(l *queue.Leader) *leader {
	ctx, end := context.WithCancel(context.Background())
	k := &leader{l, end, make(chan struct{})}
	go func() {
		defer close(k.done)
		l.KeepLease(ctx)
	}()
	return k
}

// Die ends the renewal of the lease without releasing it, as in a killed process.
func (l *leader) Die() { l.end() }

// Close ends the renewal of the lease and releases it.
func (l *leader) Close(ctx context.Context) {
	l.end()
	<-l.done
	l.Leader.Close(context.WithoutCancel(ctx))
}
