package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// drainTime limits how long a producer waits for outcomes after it was told to end.
const drainTime = 2 * time.Minute

// submitTime limits one call of Submit.
const submitTime = 10 * time.Second

// submitter submits tasks and records their outcomes.
type submitter struct {
	settings *settings
	task     task.Task[nothing, nothing]
	producer *producer.Producer
	book     *ledger.Writer
	log      *slog.Logger
	waiting  sync.WaitGroup  // goroutines that wait for results
	patience context.Context // ends when the program no longer waits for outcomes
}

// runProducer submits until ctx ends or the configured number of tasks is reached.
func runProducer(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	swarm, err := s.connect(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWithin(swarm.Close)) }()
	return submitAll(ctx, s, swarm, log)
}

func submitAll(ctx context.Context, s *settings, swarm *open.Swarm, log *slog.Logger) (err error) {
	open, err := unknownOutcomes(s)
	if err != nil {
		return err
	}
	book, err := ledger.Create(s.ledger, s.id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	if !awaitBroker(ctx, s, swarm.Broker, log) {
		return nil // ctx ended before the broker was available
	}
	cfg := producer.Config{Broker: swarm.Broker, Router: router.Static(s.queue), Logger: log}
	if s.results {
		cfg.Results = swarm.Results
	}
	p, err := producer.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeWithin(p.Close)) }()

	patience, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, giveUp) })
	defer stop()
	sub := &submitter{settings: s, task: s.work(), producer: p, book: book, log: log, patience: patience}
	sub.run(ctx, open)
	return nil
}

// awaitBroker waits until the broker accepts the queue's declaration. It returns false if ctx ends
// first.
func awaitBroker(ctx context.Context, s *settings, b broker.Broker, log *slog.Logger) bool {
	var gap task.Backoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		trying, cancel := context.WithTimeout(ctx, submitTime)
		err := broker.Declare(trying, b, broker.Queue{Name: s.queue})
		cancel()
		if err == nil {
			return true
		}
		log.Warn("waiting for the broker", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(gap.Interval(attempt)):
		}
	}
	return false
}

// run submits the open tasks of an earlier run, then new tasks at the rate, and waits for the
// outcomes.
func (s *submitter) run(ctx context.Context, open []task.ID) {
	ids := make(chan task.ID)
	var submitting sync.WaitGroup
	for range s.settings.concurrency {
		submitting.Go(func() {
			for id := range ids {
				s.submit(id)
			}
		})
	}
	feed(ctx, s.settings, open, ids)
	close(ids)
	submitting.Wait()
	s.waiting.Wait()
}

// submit submits one task until its outcome is known. If it is uncertain whether the task is
// queued, submit submits it again with the same id, unless the task must not run twice. A task is
// recorded as failed only if certainly no attempt reached the broker.
func (s *submitter) submit(id task.ID) {
	var gap task.Backoff
	uncertain := false
	for attempt := 0; s.patience.Err() == nil; attempt++ {
		s.note(ledger.Submitted, id)
		ctx, cancel := context.WithTimeout(s.patience, submitTime)
		future, err := s.task.Submit(ctx, s.producer, nothing{}, task.WithID(id))
		cancel()
		if err == nil {
			s.note(ledger.Confirmed, id)
			if s.settings.results {
				s.waiting.Go(func() { s.await(future) })
			}
			return
		}
		s.log.Warn("not confirmed", "task_id", id, "error", err)
		uncertain = uncertain || errors.Is(err, broker.ErrIndeterminate)
		if !uncertain {
			s.note(ledger.Failed, id)
			return
		}
		if s.settings.atMostOnce {
			return // a second message would be a second task
		}
		select {
		case <-time.After(gap.Interval(attempt)):
		case <-s.patience.Done():
		}
	}
}

// await waits for a task's outcome, whatever it is, and records it.
func (s *submitter) await(future *task.Future[nothing]) {
	select {
	case <-future.Done():
		s.note(ledger.Result, future.ID())
	case <-s.patience.Done():
	}
}

// note writes a line to the ledger. If that fails, note logs the error and the program continues,
// because the ledgers of other processes are still useful.
func (s *submitter) note(e ledger.Event, id task.ID) {
	if err := s.book.Write(e, string(id)); err != nil {
		s.log.Error("the ledger lacks a line", "event", e, "task_id", id, "error", err)
	}
}
