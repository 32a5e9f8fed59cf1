package sqllimit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/limit/sqllimit"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
)

// All processes that open the file share its limits.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "limits")
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
	l, err := sqllimit.New(sqllimit.Config{DB: db})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close(ctx)
	tenant := limit.Permit{Key: "tenant-7", Max: 1}
	for _, holder := range []string{"task-1", "task-2"} {
		d, err := l.Acquire(ctx, holder, 30*time.Second, tenant)
		fmt.Println(holder, d.Granted, err)
	}
	fmt.Println(l.Release(ctx, "task-1", tenant))
	d, err := l.Acquire(ctx, "task-2", 30*time.Second, tenant)
	fmt.Println("task-2", d.Granted, err)
	// Output:
	// task-1 true <nil>
	// task-2 false <nil>
	// <nil>
	// task-2 true <nil>
}
