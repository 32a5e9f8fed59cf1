package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
)

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
