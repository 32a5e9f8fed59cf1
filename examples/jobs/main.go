// Jobs runs jobs with a worker in Go: an import whose progress is shown by a bar, read from the job while it runs, and a feed that is repeated
// and carries its state from one run to the next.
//
//	go run ./examples/jobs
//
// needs no server and keeps its jobs in memory. In a file they outlive the program; when it is killed in the middle of the import and started again, that goes on
// where it was:
//
//	go run ./examples/jobs -store sqlite:jobs.db
//
// Any number of processes may run jobs of one file, and of one PostgreSQL (-store postgres://user@host/database).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/jobs/sqljobs"
	"github.com/swarmiji/swarmiji/task"
)

// Import is what the job of an import holds: what is to be done, and how much is.
type Import struct {
	Rows int `json:"rows"`
	Done int `json:"done"`
}

// Feed is where a feed stands.
type Feed struct {
	Row    int  `json:"row"`
	Delete bool `json:"delete,omitempty"` // a repeated job that leaves this as true is gone
}

var (
	importRows = task.New[Import, task.None]("demo.import")
	readFeed   = task.New[Feed, Feed]("demo.feed")
)

func main() {
	store := flag.String("store", "mem", "`URL` of the jobs: mem, sqlite:FILE or postgres://...")
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

// open returns the store that a URL names.
func open(url string) (jobs.Store, error) {
	if url == "mem" {
		return memjobs.New(memjobs.Config{})
	}
	return sqljobs.New(sqljobs.Config{URL: url})
}

func run(ctx context.Context, out io.Writer, url string, rows int) (err error) {
	store, err := open(url)
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
		return next, nil // the data of the next run
	})); err != nil {
		return err
	}
	defer closing(&err, start(worker.Run))

	// Unique: if an import is there, left by a run of this program that was killed, it is that one.
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

// doImport does its rows, and says in the job how far it is.
func doImport(ctx context.Context, at Import) (task.None, error) {
	for ; at.Done < at.Rows; at.Done++ {
		select {
		case <-time.After(5 * time.Millisecond): // one row
		case <-ctx.Done():
			return task.None{}, context.Cause(ctx)
		}
		if at.Done%10 == 0 {
			if err := runner.Progress(ctx, at); err != nil {
				return task.None{}, err
			}
		}
	}
	return task.None{}, nil
}

// watch shows how far an import is until its job is gone, as anybody can who knows its id.
func watch(ctx context.Context, out io.Writer, service *jobs.Service, id jobs.ID) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	shown := -1
	for {
		j, err := service.Query(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			draw(out, 1, 1)
			say(out, "\nimport: done\n")
			return nil
		}
		var at Import
		if err == nil {
			err = json.Unmarshal(j.Data, &at)
		}
		switch {
		case err != nil:
			return err
		case j.State == jobs.Failed:
			return errors.New(j.Reason)
		case at.Done != shown:
			draw(out, at.Done, at.Rows)
			shown = at.Done
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const barWidth = 40

func draw(out io.Writer, done, total int) {
	full := barWidth * done / max(total, 1)
	say(out, "\rimport: [%s%s] %3d%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*done/max(total, 1))
}

// say writes for a person who may have gone: then there is nobody to tell.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// start runs something. What it returns ends that, and waits for it.
func start(run func(context.Context) error) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// closing closes something at the end of a function, which fails if that does.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
