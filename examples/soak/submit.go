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
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// drainTime is how long a producer that was told to end waits for outcomes.
const drainTime = 30 * time.Second

// submitTime bounds one Submit.
const submitTime = 10 * time.Second

// submitter submits tasks and notes what becomes of them.
type submitter struct {
	settings *settings
	task     task.Task[nothing, nothing]
	producer *producer.Producer
	book     *ledger.Writer
	log      *slog.Logger
	waiting  sync.WaitGroup  // for results
	patience context.Context // ends when no outcome is waited for any more
}

// runProducer submits until ctx ends, or until it has submitted what it was asked for.
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
		return nil // told to end before there was a broker
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

// awaitBroker waits until the broker takes the queue's declaration, and reports whether it did before ctx ended.
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

// run submits what is open from an earlier run, then new tasks at the rate, and waits for the outcomes.
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

// submit brings one task to a known outcome. When nobody can tell whether it is queued, it is submitted again under the
// same id until it is, unless it must not run twice; only a task of which no attempt may have reached the broker has failed.
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

// await notes the outcome of a task, whatever it is.
func (s *submitter) await(future *task.Future[nothing]) {
	select {
	case <-future.Done():
		s.note(ledger.Result, future.ID())
	case <-s.patience.Done():
	}
}

// note writes a line. Without its ledger the run is worthless, but the ledger of the others is not: it goes on.
func (s *submitter) note(e ledger.Event, id task.ID) {
	if err := s.book.Write(e, string(id)); err != nil {
		s.log.Error("the ledger lacks a line", "event", e, "task_id", id, "error", err)
	}
}
