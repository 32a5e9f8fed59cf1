package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// A name makes an entry the same one when its times change.
func ExampleWithName() {
	ctx := context.Background()
	store, err := memschedule.New(memschedule.Config{Now: func() time.Time { return friday }})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := task.New[string, task.None]("report")
	for _, phrase := range []string{"weekday at 9am", "weekday at 10am"} {
		added, err := s.Add(ctx, schedule.Every(phrase), report.Call("sales"), schedule.WithName("sales"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(added.New, added.Changed, added.Next.Format(time.RFC1123))
	}
	// Output:
	// true false Mon, 23 Nov 2026 09:00:00 UTC
	// false true Mon, 23 Nov 2026 10:00:00 UTC
}

// Each process of a program calls Sync when it starts. Processes of an older version change
// nothing.
func ExampleSchedule_Sync() {
	ctx := context.Background()
	store, err := memschedule.New(memschedule.Config{Now: func() time.Time { return friday }})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, clearCache := task.New[string, task.None]("report"), task.New[task.None, task.None]("cache.clear")
	sync := func(revision int64, want ...schedule.Definition) {
		synced, err := s.Sync(ctx, "app", revision, want, schedule.SyncOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("revision", synced.Revision, "outdated", synced.Outdated)
		for _, e := range synced.Entries {
			fmt.Println(" ", e.Name, e.Outcome)
		}
	}
	sales := func(at string) schedule.Definition {
		return schedule.Definition{Name: "sales", At: schedule.Every(at), Call: report.Call("sales")}
	}
	clean := schedule.Definition{Name: "clean", At: schedule.Every("15 minutes"), Call: clearCache.Call(task.None{})}
	sync(41, sales("weekday at 9am"), clean)
	sync(42, sales("weekday at 10am"))
	sync(41, sales("weekday at 9am"), clean) // an old process restarts
	// Output:
	// revision 41 outdated false
	//   sales added
	//   clean added
	// revision 42 outdated false
	//   sales changed
	//   clean removed
	// revision 42 outdated true
}
