package waitlist

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// TestGroupsAreApart: who asks for something else is in another group.
func TestGroupsAreApart(t *testing.T) {
	t.Parallel()
	var all []jobs.Request
	for _, lease := range []time.Duration{0, 1000, 36022, time.Second, 10 * time.Second} {
		for _, mock := range []bool{false, true} {
			for _, priority := range []task.Opt[int]{{}, task.Set(0), task.Set(1), task.Set(11), task.Set(-1)} {
				for _, names := range [][]string{{"a"}, {"a", "b"}, {"ab"}, {"*"}, {"1"}, {"m"}, {"p1"}} {
					all = append(all, jobs.Request{Lease: lease, Selector: jobstore.Selector{Mock: mock, Priority: priority, Names: names}})
					all = append(all, jobs.Request{Lease: lease, Selector: jobstore.Selector{Mock: mock, Priority: priority, Pattern: names[0]}})
				}
				all = append(all, jobs.Request{Lease: lease, Selector: jobstore.Selector{Mock: mock, Priority: priority, Pattern: "?"}})
			}
		}
	}
	seen := map[string]string{}
	for i := range all {
		text := fmt.Sprintf("%+v", all[i])
		key := groupKey(&all[i].Selector, all[i].Lease)
		if other, ok := seen[key]; ok && other != text {
			t.Fatalf("%s and %s are one group", other, text)
		}
		seen[key] = text
	}
}
