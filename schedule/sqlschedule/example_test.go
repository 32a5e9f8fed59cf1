package sqlschedule_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/sqlschedule"
	"github.com/swarmiji/swarmiji/sqldb/sqlite"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

// An entry of AddTx exists if and only if the caller's transaction commits.
func ExampleStore_AddTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "trial")
	must(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	shared, err := sqlite.Open(file, sqlite.Config{})
	must(err)
	defer shared.Close(ctx)
	store, err := sqlschedule.New(sqlschedule.Config{DB: shared})
	must(err)
	s, err := schedule.New(schedule.Config{Store: store})
	must(err)
	_, err = store.Due(ctx, 0) // makes the tables before the first transaction
	must(err)
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	must(err)

	remind := task.New[string, task.None]("remind")
	for _, commit := range []bool{false, true} {
		own, err := db.BeginTx(ctx, nil)
		must(err)
		added, err := s.AddTx(ctx, sqltx.Wrap(own), schedule.After(24*time.Hour), remind.Call("ada@example.com"))
		must(err)
		fmt.Println("new:", added.New)
		if commit {
			must(own.Commit())
		} else {
			must(own.Rollback())
		}
		entries, _, err := store.List(ctx, "", 10)
		must(err)
		fmt.Println("entries:", len(entries))
	}
	must(errors.Join(store.Close(ctx), db.Close()))
	// Output:
	// new: true
	// entries: 0
	// new: true
	// entries: 1
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
