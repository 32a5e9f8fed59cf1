package task_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A handler reports its progress as often as it likes. The future shows the last value, also in
// another process, and events of type task-progress carry it.
func ExampleProgress() {
	load := task.New[int, string]("import")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return load.Handle(r, func(ctx context.Context, rows int) (string, error) {
			for i := range rows {
				task.Progress(ctx, i+1, rows, "customers")
			}
			return "imported", nil
		})
	})

	ctx := context.Background()
	f, err := load.Submit(ctx, s, 2000)
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Get(ctx))
	p, err := f.Progress(ctx)
	fmt.Println(p.Done, "of", p.Total, p.Note, err)
	// Output:
	// imported <nil>
	// 2000 of 2000 customers <nil>
}

// The counts of the groups of a workflow come from the store that gathers the members.
func ExampleRun_Groups() {
	fetch, sum := task.New[string, int]("fetch"), task.New[[]int, int]("sum")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		if err := sum.Handle(r, func(_ context.Context, sizes []int) (int, error) { return len(sizes), nil }); err != nil {
			return err
		}
		return fetch.Handle(r, func(_ context.Context, url string) (int, error) { return len(url), nil })
	})

	ctx := context.Background()
	run, err := task.Chord(task.Map(fetch), sum).Submit(ctx, s, []string{"a", "bb", "ccc"})
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Get(ctx))
	groups, err := run.Groups(ctx)
	fmt.Println(groups[0].Done, "of", groups[0].Total, "have ended,", groups[0].Failed, "failed", err)
	// Output:
	// 3 <nil>
	// 3 of 3 have ended, 0 failed <nil>
}
