package task_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/task"
)

// TestConditionsLieOverEachOther shows that conditions of a call override those of its definition,
// and change neither the definition nor another call.
func TestConditionsLieOverEachOther(t *testing.T) {
	plain := task.New[int, int]("plain")
	if c := plain.Call(1); c.Conditions != nil {
		t.Errorf("a task without conditions has %+v", c.Conditions)
	}
	load := task.New[int, int]("import", task.WithThrottle("imports"), task.WithWeight(0))
	night := load.With(task.WithWindows("22:00-06:00"), task.WithMaxRetries(1))
	for _, c := range []struct {
		name string
		call task.Call
		want *task.Conditions
	}{
		{"definition", load.Call(1), &task.Conditions{Throttle: "imports", Weight: task.Set(0.0)}},
		{"derived", night.Call(1), &task.Conditions{Throttle: "imports", Weight: task.Set(0.0), Windows: "22:00-06:00"}},
		{
			"call", night.Call(1, task.WithSequenceKey("s"), task.WithUniqueKey("u"), task.WithWeight(2.5)),
			&task.Conditions{SequenceKey: "s", UniqueKey: "u", Throttle: "imports", Weight: task.Set(2.5), Windows: "22:00-06:00"},
		},
		{"derived, afterwards", night.Call(1), &task.Conditions{Throttle: "imports", Weight: task.Set(0.0), Windows: "22:00-06:00"}},
		{"a call alone", plain.Call(1, task.WithThrottle("q")), &task.Conditions{Throttle: "q"}},
		{"definition, afterwards", load.Call(1), &task.Conditions{Throttle: "imports", Weight: task.Set(0.0)}},
	} {
		if diff := cmp.Diff(c.want, c.call.Conditions, cmp.Comparer(func(a, b task.Opt[float64]) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
