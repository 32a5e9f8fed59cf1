package deferrals_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/deferrals"
)

// TestKeysOfJobsAndTasks shows that a key of a waiting task cannot be taken by a job of the same
// name, and vice versa. The receipt of an answer names the job or the task.
func TestKeysOfJobsAndTasks(t *testing.T) {
	s := service(t, memory(t)(t))
	d, err := deferrals.New(deferrals.Config{Jobs: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := deferral.Attempt{Queue: "q", Name: "ask", Task: "t1", State: []byte("{}")}
	if err := d.Reserve(t.Context(), a, "task's"); err != nil {
		t.Fatal(err)
	}
	var taken *jobs.KeyTakenError
	refused := func(what string, err error) {
		t.Helper()
		if !errors.As(err, &taken) || !errors.Is(err, jobs.ErrKeyTaken) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err = s.Create(t.Context(), jobs.Spec{Name: "ask", Key: "task's"})
	if refused("a job with a task's key", err); taken.Task != "t1" || taken.Job != 0 {
		t.Errorf("the key is taken by %+v", taken)
	}
	_, err = s.CreateAll(t.Context(), []jobs.Spec{{Name: "ask", Key: "task's", UniqueKey: "u"}, {Name: "other", Key: "task's"}})
	refused("a job of several", err)
	made, err := s.Create(t.Context(), jobs.Spec{Name: "ask", Key: "job's"})
	if err != nil {
		t.Fatal(err)
	}
	err = d.Reserve(t.Context(), a, "job's")
	if refused("a task with a job's key", err); taken.Job != made.ID || !errors.Is(err, deferral.ErrRefused) {
		t.Errorf("the key is taken by %+v: %v", taken, err)
	}
	got, err := s.Get(t.Context(), jobs.Request{Max: 1, Selector: jobs.Selector{Names: []string{"ask"}}, Lease: time.Hour})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	err = s.Expect(t.Context(), jobs.Expect{ID: got[0].ID, Token: got[0].Token, Key: "task's"})
	refused("a run that expects a task's key", err)
	if r, err := s.Complete(t.Context(), "ask", "task's", 1); err != nil || r != (jobs.Receipt{Kind: jobs.Accepted, Task: "t1"}) {
		t.Errorf("the task's answer: %+v, %v", r, err)
	}
	if r, err := s.Complete(t.Context(), "ask", "job's", 1); err != nil || r != (jobs.Receipt{Kind: jobs.Accepted, Job: made.ID}) {
		t.Errorf("the job's answer: %+v, %v", r, err)
	}
}
