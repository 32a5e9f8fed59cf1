// Command batch compares a handler that inserts one row with a batch handler that inserts the rows
// of its tasks by one statement. Both insert into a SQLite file whose commits are on disk. It
// prints one line of JSON.
//
//	go run ./bench/batch [-broker mem://] [-dir DIR] [-max 100] [-n 20000] [-rounds 7]
//
// The broker is any that package open accepts. Each round measures both handlers, the single one
// with n/10 tasks and the batch handler with n tasks. The tasks are queued first, and the time ends
// with the last settlement. Both handlers have the same workers, and the same connection to the
// file. Results are ignored. The rates are medians of the rounds, and times is the median of the
// ratios within a round.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// Report is the line that is printed. Rates are tasks per second.
type Report struct {
	Broker string  `json:"broker"`
	N      int     `json:"n"`
	Max    int     `json:"max"`
	Rounds int     `json:"rounds"`
	Single float64 `json:"single"`
	Batch  float64 `json:"batch"`
	Times  float64 `json:"times"`
	Calls  float64 `json:"tasks_per_call"`
}

// settings are the flags.
type settings struct {
	broker, dir    string
	max, n, rounds int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "batch:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var s settings
	fs := flag.NewFlagSet("batch", flag.ContinueOnError)
	fs.StringVar(&s.broker, "broker", "mem://", "URL of the broker")
	fs.StringVar(&s.dir, "dir", "", "directory of the SQLite file; default: a temporary one")
	fs.IntVar(&s.max, "max", 100, "tasks of a batch; there are twice as many workers")
	fs.IntVar(&s.n, "n", 20_000, "tasks of a round")
	fs.IntVar(&s.rounds, "rounds", 7, "rounds")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if s.max < 1 || s.n < 10 || s.rounds < 1 {
		return errors.New("-max and -rounds must be 1 or more, -n 10 or more")
	}
	dir, err := os.MkdirTemp(s.dir, "batch")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "rows.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE rows (id integer PRIMARY KEY, number integer NOT NULL)"); err != nil {
		return err
	}
	r := Report{Broker: s.broker, N: s.n, Max: s.max, Rounds: s.rounds}
	var single, batch, times []float64
	for i := range s.rounds {
		a, _, err := measure(ctx, &s, db, fmt.Sprint("single-", i), s.n/10, insertOne)
		if err != nil {
			return err
		}
		b, calls, err := measure(ctx, &s, db, fmt.Sprint("batch-", i), s.n, insertBatch)
		if err != nil {
			return err
		}
		single, batch, times = append(single, a), append(batch, b), append(times, b/a)
		r.Calls += float64(s.n) / float64(calls) / float64(s.rounds)
	}
	r.Single, r.Batch, r.Times = median(single), median(batch), median(times)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// median returns the median of an odd number of values, or the upper one of the middle two.
func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// row is the task: its argument is a number to insert.
var row = task.New[int, task.None]("bench.row", task.WithIgnoreResult(true))

// handler registers a handler of row, which counts its calls.
type handler func(r task.Registrar, s *settings, db *sql.DB, called func()) error

func insertOne(r task.Registrar, _ *settings, db *sql.DB, called func()) error {
	return row.Handle(r, func(ctx context.Context, number int) (task.None, error) {
		called()
		_, err := db.ExecContext(ctx, "INSERT INTO rows (number) VALUES (?)", number)
		return task.None{}, err
	})
}

func insertBatch(r task.Registrar, s *settings, db *sql.DB, called func()) error {
	return row.HandleBatch(r, task.BatchOptions{Max: s.max}, func(ctx context.Context, batch []*task.BatchItem[int, task.None]) error {
		called()
		numbers := make([]any, len(batch))
		for i, item := range batch {
			numbers[i] = item.Args
			item.Return(task.None{}, nil)
		}
		_, err := db.ExecContext(ctx, "INSERT INTO rows (number) VALUES (?)"+strings.Repeat(", (?)", len(batch)-1), numbers...)
		return err
	})
}

// measure queues n tasks, runs them, and returns the rate and the number of calls of the handler.
// The time begins with the consumer and ends with the last settlement.
func measure(ctx context.Context, s *settings, db *sql.DB, queue string, n int, register handler) (rate float64, calls int, err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	swarm, err := open.Open(ctx, s.broker, open.Options{Logger: log})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, swarm.Close(context.WithoutCancel(ctx))) }()
	called := make(chan struct{}, n)
	c, err := consumer.New(consumer.Config{
		Broker: swarm.Broker, Queues: map[string]consumer.QueueConfig{queue: {Workers: 2 * s.max}},
		Revocations: revoke.NewLocal(log), Logger: log,
	})
	if err != nil {
		return 0, 0, err
	}
	if err := register(c, s, db, func() { called <- struct{}{} }); err != nil {
		return 0, 0, err
	}
	p, err := producer.New(producer.Config{Broker: swarm.Broker, Router: router.Static(queue), Logger: log})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	if _, err := row.SubmitAll(ctx, p, numbers); err != nil {
		return 0, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- c.Run(running) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.Stats().Succeeded < int64(n) {
		select {
		case <-tick.C:
		case err := <-ended:
			return 0, 0, errors.Join(err, errors.New("the consumer has stopped"))
		}
		if failed := c.Stats().Failed; failed > 0 {
			return 0, 0, fmt.Errorf("%d tasks have failed", failed)
		}
	}
	took := time.Since(began)
	stop()
	return float64(n) / took.Seconds(), len(called), <-ended
}
