// Jobs runs two kinds of jobs with a worker in Go. An import job stores its progress, and a bar
// shows it. A repeated feed job carries its state from one attempt to the next.
//
//	go run ./examples/jobs
//
// needs no server and keeps its jobs in memory. Jobs in a file outlive the program. If the program
// is killed during the import, the next start continues the import:
//
//	go run ./examples/jobs -store sqlite:jobs.db
//
// Several processes may run the jobs of one file or of one PostgreSQL database (-store
// postgres://user@host/database).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // machines without zone files

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/postgres"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
	"github.com/swarmiji/swarmiji/task"
)

// Feed is the data of a feed job: the next row to read.
type Feed struct {
	Row    int  `json:"row"`
	Delete bool `json:"delete,omitempty"` // true deletes the repeated job
}

var (
	importRows = task.New[Import, task.None]("demo.import")
	readFeed   = task.New[Feed, Feed]("demo.feed")
)

func main() {
	store := flag.String("store", "mem://", "`URL` of the jobs: mem://, sqlite:FILE or postgres://...")
	rows := flag.Int("rows", 200, "`rows` of the import")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *store, *rows); err != nil {
		fmt.Fprintln(os.Stderr, "jobs:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url string, rows int) (err error) {
	store, err := open.Jobs(ctx, url, open.JobsOptions{})
	if err != nil {
		return err
	}
	defer closing(&err, store.Close)
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		return err
	}
	defer closing(&err, service.Close)

	feeds := make(chan Feed, 3)
	worker, err := runner.New(runner.Config{Service: service, Workers: 4, Lease: 2 * time.Second, ShutdownTimeout: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	if err := errors.Join(importRows.Handle(worker, doImport), readFeed.Handle(worker, func(_ context.Context, at Feed) (Feed, error) {
		feeds <- at
		next := Feed{Row: at.Row + 100}
		next.Delete = next.Row >= 300
		return next, nil // the data of the next attempt
	})); err != nil {
		return err
	}
	defer closing(&err, start(worker.Run))

	// Unique: if a killed program left an import job, Create returns that job.
	made, err := service.Create(ctx, jobs.Spec{Name: importRows.Name(), Data: fmt.Appendf(nil, `{"rows":%d}`, rows), Unique: true, Keep: true})
	if err != nil {
		return err
	}
	if err := watch(ctx, out, service, made.ID); err != nil {
		return err
	}
	if _, err := service.Create(ctx, jobs.Spec{Name: readFeed.Name(), Repeat: "FINISHED, +1 SECOND", Unique: true, Keep: true}); err != nil {
		return err
	}
	for {
		select {
		case at := <-feeds:
			say(out, "feed: from row %d\n", at.Row)
			if at.Row >= 200 {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
