package jobcmd

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestJobOfTask: --task selects the job of a task with conditions, with and without its name.
func TestJobOfTask(t *testing.T) {
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		errs := s.CreateForTasks(t.Context(), []task.Conditioned{{
			ID: task.ID(fmt.Sprintf("ship-%d", i)), Name: "ship", Message: []byte(`{}`), Conditions: task.Conditions{Throttle: "tasks"},
		}})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
	}
	for _, c := range []struct {
		o    listOptions
		want []jobs.ID
	}{
		{listOptions{task: "ship-1"}, []jobs.ID{2}},
		{listOptions{task: "ship-1", name: "ship"}, []jobs.ID{2}},
		{listOptions{task: "ship-1", name: "s*"}, []jobs.ID{2}},
		{listOptions{task: "ship-1", queue: "tasks"}, []jobs.ID{2}},
		{listOptions{task: "ship-1", name: "other"}, nil},
		{listOptions{task: "ship-9"}, nil},
	} {
		c.o.order, c.o.limit = "id", 10
		l, err := c.o.lister()
		if err == nil {
			err = l.read(t.Context(), s)
		}
		var got []jobs.ID
		if err == nil {
			for i := range l.found {
				got = append(got, l.found[i].ID)
			}
		}
		if err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v; want %v", c.o, got, err, c.want)
		}
	}
	bad := listOptions{task: "a b", order: "id", limit: 1}
	if _, err := bad.lister(); cli.Status(err) != cli.ExitUsage {
		t.Errorf("an invalid id: %v", err)
	}
}

// TestJobPages: the output does not depend on the pages in which jobs are read.
func TestJobPages(t *testing.T) {
	const many = 3*jobPage + 7
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(time.Hour)
	for i := range many {
		spec := jobs.Spec{Name: fmt.Sprintf("odd/%d", i), Priority: task.Set(i % 11), FirstRun: begin.Add(-time.Duration(i) * time.Second)}
		if i%2 == 1 {
			spec.Name = "even/" + spec.Name
		}
		if _, err := s.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		o    listOptions
		want []jobs.ID
		more bool
	}{
		{listOptions{order: "id", limit: 3}, []jobs.ID{1, 2, 3}, true},
		{listOptions{order: "id", limit: 3, after: many - 2}, []jobs.ID{many - 1, many}, false},
		{listOptions{order: "id", limit: 2, after: many - 2}, []jobs.ID{many - 1, many}, false},
		{listOptions{order: "id", limit: 2, name: "even/*", after: 2*jobPage - 2}, []jobs.ID{2 * jobPage, 2*jobPage + 2}, true},
		{listOptions{order: "newest", limit: 2}, []jobs.ID{many, many - 1}, true},
		{listOptions{order: "due", limit: 2, name: "odd/*"}, []jobs.ID{many, many - 2}, true},
		{listOptions{order: "due", limit: 1, states: []string{"queued"}}, []jobs.ID{many}, true},
		{listOptions{order: "priority", limit: 3}, []jobs.ID{1, 12, 23}, true},
		{listOptions{order: "newest", limit: 5, name: "odd/0"}, []jobs.ID{1}, false},
		{listOptions{order: "id", limit: 5, states: []string{"FAILED"}}, []jobs.ID{}, false},
	} {
		l, err := c.o.lister()
		if err == nil {
			err = l.read(t.Context(), s)
		}
		if err != nil {
			t.Errorf("%+v: %v", c.o, err)
			continue
		}
		got := []jobs.ID{}
		for i := range l.found {
			got = append(got, l.found[i].ID)
		}
		if !cmp.Equal(got, c.want) || l.more != c.more {
			t.Errorf("%+v: %v, more %t; want %v, %t", c.o, got, l.more, c.want, c.more)
		}
	}
}
