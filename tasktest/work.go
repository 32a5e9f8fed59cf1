package tasktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// Attempt is the outcome of one attempt of a task.
type Attempt[R any] struct {
	// Result is the submitter's result. Zero: the task has not succeeded.
	Result R
	// Err is the failure as the submitter sees it: mostly a *task.RemoteError, which equals the
	// sentinels of package task. nil: the attempt did not fail.
	Err error
	// Returned is the error that the handler returned, a verdict such as task.Retry included. nil:
	// it returned none, or did not return within the time limit.
	Returned error
	// State is the state of the task after the attempt: succeeded, failed, retrying, pending after a
	// snooze or a crash.
	State task.State
	// Delay is the time until the next attempt. 0: no further attempt, or an immediate one.
	Delay time.Duration
	// Events are those of the task, in order.
	Events []events.Event

	sent []sent
}

func (a *Attempt[R]) submissions() []sent { return a.sent }

// Work submits one call and runs one attempt of it with handler, over a broker of its own. It
// returns when the attempt is settled. No other consumer of the swarm sees the task. What handler
// submits to the swarm meanwhile stays in the swarm and is in the attempt. It fails the test if the
// call is refused, and needs a bubble.
func Work[A, R any](s *Swarm, def task.Task[A, R], handler func(context.Context, A) (R, error), args A, opts ...task.Option) *Attempt[R] {
	s.helper()
	s.begin("Work", 100*365*24*time.Hour) // own has a watchdog
	defer s.begin("Work", 0)
	own := New(nil) // its end is that of this call
	own.t, own.log = s.t, s.log
	defer own.Close()

	var a Attempt[R]
	var mu sync.Mutex // the handler may outlive its time limit
	queue := queueOf(def.Call(args, opts...))
	c := own.prepare(consumer.Config{Queues: map[string]consumer.QueueConfig{queue: {Workers: 1, Prefetch: 1}}})
	c.process.once = true
	err := def.Handle(registrar{c}, func(ctx context.Context, args A) (R, error) {
		r, err := handler(ctx, args)
		mu.Lock()
		defer mu.Unlock()
		a.Returned = err
		return r, err
	})
	if err != nil {
		s.fatalf("tasktest: register the handler of %s: %v", def.Name(), err)
	}
	heard := own.listen()
	before := len(s.submissions())
	future, err := def.Submit(context.Background(), own.Producer(producer.Config{Queues: []broker.Queue{{Name: queue}}}), args, opts...)
	if err != nil {
		s.fatalf("tasktest: submit %s: %v", def.Name(), err)
	}
	c.run() // after the submission, so that its event comes first
	own.awaitSettled(c)
	s.take(own)
	mu.Lock()
	defer mu.Unlock()
	a.sent = s.submissions()[before:]
	a.Delay = time.Duration(c.process.delay.Load())
	a.Events = heard(future.ID())
	a.State = own.stateOf(future.ID(), a.Events)
	if a.State.Terminal() {
		a.Result, a.Err = future.Get(context.Background())
	} else if rec, err := own.Results.Load(context.Background(), future.ID()); err == nil && rec.Error != nil {
		a.Err = rec.Error
	}
	return &a
}

// awaitSettled waits until the attempt of Work is settled. A delay before it may take any time.
func (s *Swarm) awaitSettled(c *Consumer) {
	s.helper()
	for {
		late := time.NewTimer(patience)
		select {
		case <-c.process.settled:
			late.Stop()
			synctest.Wait()
			return
		case <-late.C:
		}
		if !s.idle(false) {
			s.fatalf("tasktest: Work waits in vain: %s", s.describe())
		}
		s.watchdog.Reset(2 * patience)
	}
}

// queueOf returns the queue that a call goes to.
func queueOf(c task.Call) string {
	var m task.Metadata
	if c.Definition != nil {
		m = *c.Definition
	}
	m.Overlay(&c.Meta)
	return m.Queue.Or(router.DefaultQueue)
}

// take adds the attempts of another swarm.
func (s *Swarm) take(of *Swarm) {
	of.mu.Lock()
	started := slices.Clone(of.started)
	of.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(s.started, started...)
}

// listen collects events. The returned function returns the events of a task so far.
func (s *Swarm) listen() func(task.ID) []events.Event {
	stream, err := s.Events.Subscribe(context.Background(), events.Filter{})
	if err != nil {
		s.fatalf("tasktest: listen to events: %v", err)
	}
	var mu sync.Mutex
	var all []events.Event
	go func() { // until the bus is closed
		for {
			e, err := stream.Receive(context.Background())
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, e)
			mu.Unlock()
		}
	}()
	return func(id task.ID) []events.Event {
		mu.Lock()
		defer mu.Unlock()
		return slices.DeleteFunc(slices.Clone(all), func(e events.Event) bool { return e.TaskID != id })
	}
}

// stateOf returns the state of a task by its record, or by its events if it keeps none.
func (s *Swarm) stateOf(id task.ID, heard []events.Event) task.State {
	rec, err := s.Results.Load(context.Background(), id)
	switch {
	case err == nil:
		return rec.State
	case !errors.Is(err, resultstore.ErrNotFound):
		s.fatalf("tasktest: read the record of %s: %v", id, err)
	}
	for _, e := range slices.Backward(heard) {
		switch {
		case e.Type == events.TaskSucceeded:
			return task.StateSucceeded
		case e.Type == events.TaskFailed && e.Retry:
			return task.StateRetrying
		case e.Type == events.TaskFailed:
			return task.StateFailed
		}
	}
	return task.StatePending
}
