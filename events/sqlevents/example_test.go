package sqlevents_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/sqlevents"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
)

// A listener, which may be in another process, receives events through a file. A late listener
// receives the kept ones.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "events")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(filepath.Join(dir, "app.db"), sqlite.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close(ctx)
	bus, err := sqlevents.New(sqlevents.Config{
		DB:     db,
		Retain: events.Retention{Age: time.Hour, Types: []string{events.TaskFailed}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close(ctx)
	now, err := bus.Subscribe(ctx, events.Filter{TaskID: "task-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, typ := range []string{events.TaskStarted, events.TaskFailed} {
		if err := bus.Publish(ctx, events.Event{Type: typ, TaskID: "task-1"}); err != nil {
			fmt.Println(err)
		}
	}
	for range 2 {
		e, err := now.Receive(ctx)
		fmt.Println(e.TaskID, e.Type, err)
	}
	late, err := bus.Replay(ctx, events.Filter{}, time.Time{})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := late.Receive(ctx)
	fmt.Println("kept:", e.TaskID, e.Type, err)
	// Output:
	// task-1 task-started <nil>
	// task-1 task-failed <nil>
	// kept: task-1 task-failed <nil>
}
