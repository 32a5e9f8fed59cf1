package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// TestCurrentOfConditions shows that a task with conditions starts only while its job runs, and
// that follow-up tasks pass unchecked.
func TestCurrentOfConditions(t *testing.T) {
	bubble(t, func(w *world) {
		ctx := context.Background()
		ran := 0
		h := runner.Current(w.Service)(task.HandlerFunc(func(ctx context.Context, q *task.Request) (any, error) {
			ran++
			if held, ok := runner.FromContext(ctx); ok != (q.ID == "a") || ok && held.Queue != "tasks" {
				w.Errorf("task %s has the job %+v, %v", q.ID, held, ok)
			}
			if q.ID == "a" {
				w.is(runner.Progress(ctx, map[string]int{"n": 1}), jobs.ErrUnsupported)
			}
			return nil, nil
		}))
		handle := func(id task.ID) error {
			e := &task.Envelope{ID: id, Name: "work", Headers: map[string]string{task.HeaderConditions: "a"}}
			_, err := h.Handle(ctx, task.NewRequest(e, nil))
			return err
		}
		w.is(handle("b"), nil) // a follow-up task, which has inherited the header
		w.is(handle("a"), jobs.ErrStale)
		for _, state := range []jobs.State{jobs.Queued, jobs.Waiting, jobs.Cancelled, jobs.Failed, jobs.Finished} {
			w.putPrepared("work", state)
		}
		w.putPrepared("other work", jobs.Running)
		w.is(handle("a"), jobs.ErrStale)
		if ran != 1 {
			w.Fatalf("%d tasks ran, want the one that has no conditions", ran)
		}
		w.putPrepared("work", jobs.Running)
		w.is(handle("a"), nil)
		if ran != 2 {
			w.Fatal("the task whose job runs did not run")
		}
	})
}

// TestTaskEnded shows that TaskEnded ends a running job once, and no other job.
func TestTaskEnded(t *testing.T) {
	bubble(t, func(w *world) {
		ctx := context.Background()
		w.ok(w.TaskEnded(ctx, "work", "a", nil))
		waiting, other := w.putPrepared("work", jobs.Queued), w.putPrepared("other work", jobs.Running)
		w.ok(w.TaskEnded(ctx, "work", "a", nil))
		for _, failure := range []error{nil, errors.New("no luck")} {
			id := w.putPrepared("work", jobs.Running)
			for range 2 {
				w.ok(w.TaskEnded(ctx, "work", "a", failure))
			}
			j, err := w.Query(ctx, id)
			w.ok(err)
			if want := map[bool]jobs.State{true: jobs.Finished, false: jobs.Failed}[failure == nil]; j.State != want || failure != nil && j.Reason != "no luck" {
				w.Errorf("a task that ended with %v has left %+v", failure, j)
			}
		}
		for id, want := range map[jobs.ID]jobs.State{waiting: jobs.Queued, other: jobs.Running} {
			if j, err := w.Query(ctx, id); err != nil || j.State != want {
				w.Errorf("%s is %s, %v", j.Name, j.State, err)
			}
		}
	})
}

// putPrepared stores a job of the task "a".
func (w *world) putPrepared(name string, state jobs.State) jobs.ID {
	w.Helper()
	now := time.Now()
	j := &jobs.Row{Job: jobs.Job{
		Name: name, State: state, Data: []byte("{}"), Created: now, Changed: now, NextRun: now, Queue: "tasks", Key: jobs.KeyOfTask("a"),
	}, Run: 1, Token: 1}
	w.ok(w.store.Update(context.Background(), func(ctx context.Context, tx jobstore.Tx) error { return tx.Save(ctx, j) }))
	if id := jobs.TaskID(*j); id != "a" {
		w.Fatalf("the job's task is %q", id)
	}
	return j.ID
}

func TestTaskOf(t *testing.T) {
	for _, j := range []jobs.Job{{Queue: "q"}, {Queue: "q", Key: "swarmiji.task"}, {Key: jobs.KeyOfTask("a")}, {Queue: "q", Key: "a"}} {
		if id, ok := jobs.TaskOf(&j); ok {
			t.Errorf("%+v is taken for task %s", j, id)
		}
		if jobs.TaskID(jobs.Row{Job: j}) == "a" {
			t.Errorf("%+v has the id of another's task", j)
		}
	}
	if id, ok := jobs.TaskOf(&jobs.Job{Queue: "q", Key: jobs.KeyOfTask("a")}); !ok || id != "a" {
		t.Error(errors.New("the task of a job is not known"), id)
	}
}
