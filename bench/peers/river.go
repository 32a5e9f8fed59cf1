package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs are the arguments of River's job.
type riverArgs struct{ Data []byte }

// Kind names the job.
func (riverArgs) Kind() string { return "peers_work" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	seen func()
}

// Work runs one job.
func (w *riverWorker) Work(context.Context, *river.Job[riverArgs]) error {
	w.seen()
	return nil
}

type riverSide struct {
	pool    *pgxpool.Pool
	inserts *river.Client[pgx.Tx]
}

func dialRiver(ctx context.Context, url string) (side, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	c, err := river.NewClient(driver, &river.Config{Logger: quiet()})
	return &riverSide{pool, c}, err
}

func (s *riverSide) submit(ctx context.Context) error {
	_, err := s.inserts.Insert(ctx, riverArgs{make([]byte, arguments)}, &river.InsertOpts{Queue: queue})
	return err
}

func (s *riverSide) submitMany(ctx context.Context, n int) error {
	jobs := make([]river.InsertManyParams, 0, min(n, 10_000))
	for i := 0; i < n; i += len(jobs) {
		jobs = jobs[:0]
		for range min(n-i, cap(jobs)) {
			jobs = append(jobs, river.InsertManyParams{
				Args: riverArgs{make([]byte, arguments)}, InsertOpts: &river.InsertOpts{Queue: queue},
			})
		}
		if _, err := s.inserts.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// serve runs River as its users tune it for short jobs.
func (s *riverSide) serve(ctx context.Context, seen func()) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{seen: seen})
	c, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Queues: map[string]river.QueueConfig{queue: {MaxWorkers: 2000}}, FetchCooldown: 2 * time.Millisecond,
		Workers: workers, Logger: quiet(),
	})
	if err != nil {
		return err
	}
	running := context.WithoutCancel(ctx)
	if err := c.Start(running); err != nil {
		return err
	}
	<-ctx.Done()
	return c.Stop(running)
}

func (s *riverSide) clear(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "TRUNCATE river_job")
	s.pool.Close()
	return err
}
