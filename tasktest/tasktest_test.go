package tasktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

var (
	double = task.New[int, int]("double")
	flaky  = task.New[int, string]("flaky", task.WithMaxRetries(2), task.WithRetryDelay(3*time.Minute))
	mail   = task.New[string, task.None]("mail", task.WithQueue("mail"))
)

var errBusy = errors.New("busy")

func handleDouble(_ context.Context, n int) (int, error) { return 2 * n, nil }

// handleFlaky is retried n times.
func handleFlaky(ctx context.Context, n int) (string, error) {
	if r, _ := task.FromContext(ctx); r.Retries < n {
		return "", task.Retry(errBusy)
	}
	return "done", nil
}

func register(r task.Registrar) error {
	return errors.Join(double.Handle(r, handleDouble), flaky.Handle(r, handleFlaky))
}

func TestWork(t *testing.T) {
	for name, c := range map[string]struct {
		handler  func(context.Context, int) (string, error)
		opts     []task.Option
		state    task.State
		result   string
		err      error
		returned bool
		delay    time.Duration
		events   []string
	}{
		"success": {
			handler: func(context.Context, int) (string, error) { return "done", nil },
			state:   task.StateSucceeded, result: "done", events: []string{"task-sent", "task-received", "task-started", "task-succeeded"},
		},
		"without a record": {
			handler: func(context.Context, int) (string, error) { return "done", nil },
			opts:    []task.Option{task.WithIgnoreResult(true)},
			state:   task.StateSucceeded, events: []string{"task-sent", "task-received", "task-started", "task-succeeded"},
		},
		"failure": {
			handler: func(context.Context, int) (string, error) { return "", task.Named("busy", errBusy) },
			state:   task.StateFailed, returned: true, events: []string{"task-sent", "task-received", "task-started", "task-failed"},
		},
		"retry": {
			handler: handleFlakyTen, state: task.StateRetrying, returned: true, delay: 3 * time.Minute,
			events: []string{"task-sent", "task-received", "task-started", "task-sent", "task-failed"},
		},
		"retry at once": {
			handler: func(context.Context, int) (string, error) { return "", task.Retry(errBusy, task.After(0)) },
			state:   task.StateRetrying, returned: true,
			events: []string{"task-sent", "task-received", "task-started", "task-sent", "task-failed"},
		},
		"no retries left": {
			handler: handleFlakyTen, opts: []task.Option{task.WithMaxRetries(0)}, state: task.StateFailed, returned: true,
			events: []string{"task-sent", "task-received", "task-started", "task-failed"},
		},
		"snooze": {
			handler: func(context.Context, int) (string, error) { return "", task.Snooze(time.Hour) },
			state:   task.StatePending, returned: true, delay: time.Hour, events: []string{"task-sent", "task-received", "task-started"},
		},
		"time limit": {
			handler: func(ctx context.Context, _ int) (string, error) { <-ctx.Done(); return "", context.Cause(ctx) },
			opts:    []task.Option{task.WithTimeLimit(time.Hour)}, state: task.StateFailed, err: task.ErrTimeLimit, returned: true,
			events: []string{"task-sent", "task-received", "task-started", "task-failed"},
		},
		"panic": {
			handler: func(context.Context, int) (string, error) { panic("oh") }, state: task.StateFailed, err: task.ErrPanic,
			events: []string{"task-sent", "task-received", "task-started", "task-failed"},
		},
		"crash": {
			handler: func(ctx context.Context, _ int) (string, error) { tasktest.Crash(ctx); return "", nil },
			state:   task.StatePending, events: []string{"task-sent", "task-received", "task-started"},
		},
		"expired": {
			handler: func(context.Context, int) (string, error) { return "late", nil },
			opts:    []task.Option{task.WithDelay(time.Hour), task.WithExpires(time.Date(2000, 1, 1, 0, 30, 0, 0, time.UTC))},
			state:   task.StateExpired, err: task.ErrExpired, events: []string{"task-sent", "task-received", "task-revoked"},
		},
		"another queue, delayed": {
			handler: func(context.Context, int) (string, error) { return "done", nil },
			opts:    []task.Option{task.WithQueue("slow"), task.WithDelay(48 * time.Hour)},
			state:   task.StateSucceeded, result: "done", events: []string{"task-sent", "task-received", "task-started", "task-succeeded"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				a := tasktest.Work(s, flaky, c.handler, 1, c.opts...)
				if a.State != c.state || a.Result != c.result || a.Delay != c.delay {
					t.Errorf("state %s, result %q, delay %v; want %s, %q, %v", a.State, a.Result, a.Delay, c.state, c.result, c.delay)
				}
				if c.err != nil && !errors.Is(a.Err, c.err) {
					t.Errorf("error is %v, want %v", a.Err, c.err)
				}
				if failed := c.state == task.StateFailed || c.state == task.StateRetrying; failed && a.Err == nil || c.state == task.StateSucceeded && a.Err != nil {
					t.Errorf("error is %v in state %s", a.Err, a.State)
				}
				if (a.Returned != nil) != c.returned {
					t.Errorf("the handler returned %v", a.Returned)
				}
				var types []string
				for _, e := range a.Events {
					types = append(types, e.Type)
				}
				if !slices.Equal(types, c.events) {
					t.Errorf("events are %v, want %v", types, c.events)
				}
			})
		})
	}
}

func handleFlakyTen(ctx context.Context, _ int) (string, error) { return handleFlaky(ctx, 10) }

// TestWorkSubmits: the attempt has the submissions of its handler, and not earlier ones.
func TestWorkSubmits(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		submit := func(n int) error {
			_, err := double.Submit(t.Context(), s, n, task.WithHeader("tenant", "a"))
			return err
		}
		if err := submit(1); err != nil {
			t.Fatal(err)
		}
		a := tasktest.Work(s, flaky, func(ctx context.Context, n int) (string, error) { return "", submit(n) }, 2)
		if got := tasktest.RequireSubmitted(t, a, double); got.Args != 2 || got.Queue != "default" || got.Envelope.Headers["tenant"] != "a" {
			t.Errorf("it submitted %+v", got)
		}
		if n := len(tasktest.Submitted(s, double)); n != 2 {
			t.Errorf("the swarm has %d submissions, want 2", n)
		}
		tasktest.RequireNotSubmitted(t, a, mail)
	})
}

func TestDrain(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		s.Start(consumer.Config{}, func(r task.Registrar) error {
			return errors.Join(register(r), task.New[int, int]("slow").Handle(r, func(_ context.Context, n int) (int, error) {
				time.Sleep(time.Hour)
				return n, nil
			}))
		})
		begun := time.Now()
		for range 3 {
			must(double.Submit(t.Context(), s, 1))
		}
		must(flaky.Submit(t.Context(), s, 2))
		must(flaky.Submit(t.Context(), s, 9))
		if got, want := s.Drain(), (tasktest.Summary{Succeeded: 3, Retried: 2, Delayed: 2}); got != want {
			t.Errorf("after Drain: %+v, want %+v", got, want)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("Drain took %v", d)
		}
		if got, want := s.Advance(3*time.Minute), (tasktest.Summary{Retried: 2, Delayed: 2}); got != want {
			t.Errorf("after Advance: %+v, want %+v", got, want)
		}
		must(double.Submit(t.Context(), s, 1, task.WithDelay(7*24*time.Hour)))
		if got, want := s.DrainAll(), (tasktest.Summary{Succeeded: 2, Failed: 1}); got != want {
			t.Errorf("after DrainAll: %+v, want %+v", got, want)
		}
		if d := time.Since(begun); d != 7*24*time.Hour+3*time.Minute {
			t.Errorf("it took %v", d)
		}
		begun = time.Now()
		must(task.New[int, int]("slow").Submit(t.Context(), s, 1))
		must(double.Submit(t.Context(), s, 1, task.WithDelay(time.Hour+1*time.Second)))
		if got, want := s.Drain(), (tasktest.Summary{Succeeded: 1, Delayed: 1}); got != want {
			t.Errorf("after Drain of a slow handler: %+v, want %+v", got, want)
		}
		if d := time.Since(begun); d != time.Hour {
			t.Errorf("Drain took %v, and the handler an hour", d)
		}
	})
}

// A submission to the swarm makes its queue, also with levels for later; a producer's does not.
func TestQueueOfNobody(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		must(mail.Submit(t.Context(), s, "a"))
		must(mail.SubmitAll(t.Context(), s, []string{"b"}, task.WithQueue("other")))
		if got, want := s.Drain(), (tasktest.Summary{Unclaimed: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if _, err := mail.Submit(t.Context(), s.Producer(producer.Config{}), "c", task.WithQueue("third")); !errors.Is(err, broker.ErrNoQueue) {
			t.Errorf("a producer returned %v", err)
		}
		if _, err := mail.Submit(t.Context(), s, "d", task.WithQueue("no name")); err == nil {
			t.Error("a queue without a name is made")
		}
	})
}

// TestDrainUnclaimed: tasks of a queue without a consumer are counted and not waited for.
func TestDrainUnclaimed(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		p := s.Producer(producer.Config{Queues: []broker.Queue{{Name: "mail"}}})
		must(mail.Submit(t.Context(), p, "a"))
		must(mail.Submit(t.Context(), p, "b", task.WithDelay(time.Hour)))
		if got, want := s.DrainAll(), (tasktest.Summary{Unclaimed: 1, Delayed: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		c := s.Start(consumer.Config{Queues: map[string]consumer.QueueConfig{"mail": {}}}, func(r task.Registrar) error {
			return mail.Handle(r, func(context.Context, string) (task.None, error) { return task.None{}, nil })
		})
		if err := c.Pause(); err != nil {
			t.Fatal(err)
		}
		must(mail.Submit(t.Context(), p, "c"))
		if got, want := s.DrainAll(), (tasktest.Summary{Succeeded: 1, Unclaimed: 1, Delayed: 1}); got != want {
			t.Errorf("while the queue is paused: %+v, want %+v", got, want)
		}
		if err := c.Resume(); err != nil {
			t.Fatal(err)
		}
		if got, want := s.DrainAll(), (tasktest.Summary{Succeeded: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestCrash(t *testing.T) {
	at := func(p tasktest.Point) func(*tasktest.Consumer) {
		return func(c *tasktest.Consumer) { c.CrashAt(p, double.Name()) }
	}
	for name, c := range map[string]struct {
		arm     func(*tasktest.Consumer)
		opts    []task.Option
		starts  int // of the handler, in all
		effects int // of the handler
	}{
		"before the handler":           {at(tasktest.BeforeHandler), nil, 2, 1},
		"in the handler":               {nil, nil, 2, 1},
		"in the handler, with a limit": {nil, []task.Option{task.WithTimeLimit(time.Minute)}, 2, 1},
		"after the handler":            {at(tasktest.AfterHandler), nil, 2, 2},
		"before the ack":               {at(tasktest.BeforeAck), nil, 1, 1}, // its result is stored
		"before the ack, no result":    {at(tasktest.BeforeAck), []task.Option{task.WithIgnoreResult(true)}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
				effects, inside := 0, c.arm == nil
				register := func(r task.Registrar) error {
					return double.Handle(r, func(ctx context.Context, n int) (int, error) {
						if inside {
							inside = false
							tasktest.Crash(ctx)
						}
						effects++
						_, err := flaky.Submit(ctx, s, 0, task.WithDelay(24*time.Hour))
						return 2 * n, err
					})
				}
				first := s.Start(consumer.Config{}, register)
				if c.arm != nil {
					c.arm(first)
				}
				future := must(double.Submit(t.Context(), s, 21, c.opts...))
				s.Drain()
				if !first.Crashed() {
					t.Fatal("it has not crashed")
				}
				second := s.Start(consumer.Config{}, register)
				s.Drain()
				if n, err := future.Get(t.Context()); n != 42 && len(c.opts) == 0 || err != nil {
					t.Errorf("the result is %d, %v", n, err)
				}
				runs := s.Started(double.Name())
				if len(runs) != c.starts || effects != c.effects || len(tasktest.Submitted(s, flaky)) != effects {
					t.Errorf("the handler was started %d times, had its effect %d times, and submitted %d tasks; want %d, %d and as many",
						len(runs), effects, len(tasktest.Submitted(s, flaky)), c.starts, c.effects)
				}
				if runs[0].NodeID != first.NodeID() || len(runs) > 1 && (runs[1].NodeID != second.NodeID() || runs[1].Deliveries != 2) {
					t.Errorf("the runs are not those of the two consumers")
				}
			})
		})
	}
}

// TestCrashMeanwhile: actions of a handler after the crash of its consumer have no effect.
func TestCrashMeanwhile(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		var late error
		register := func(r task.Registrar) error {
			return double.Handle(r, func(ctx context.Context, n int) (int, error) {
				if q, _ := task.FromContext(ctx); q.Deliveries > 1 {
					return 2 * n, nil
				}
				<-ctx.Done()
				_, late = flaky.Submit(context.WithoutCancel(ctx), s, 0)
				return 0, nil
			})
		}
		first := s.Start(consumer.Config{}, register)
		future := must(double.Submit(t.Context(), s, 21))
		s.Advance(time.Second)
		first.Crash()
		s.Start(consumer.Config{}, register)
		s.Drain()
		if n, err := future.Get(t.Context()); n != 42 || err != nil {
			t.Errorf("the result is %d, %v", n, err)
		}
		if !errors.Is(late, broker.ErrUnavailable) {
			t.Errorf("a submission after the crash returned %v", late)
		}
		tasktest.RequireNotSubmitted(t, s, flaky)
	})
}

func TestSchedule(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		s.Start(consumer.Config{}, register)
		of := s.Listen(schedule.ListenerConfig{Submit: s}, func(l *schedule.Listener) error { return schedule.Forward(l, double) })
		must(of.Add(t.Context(), schedule.Every("day at 7am"), double.Call(1)))
		must(of.Add(t.Context(), schedule.At("7pm tomorrow"), double.Call(2)))
		s.Advance(7 * 24 * time.Hour)
		runs := tasktest.Submitted(s, double, tasktest.Like(1))
		if len(runs) != 7 || !runs[0].At.Equal(time.Date(2000, 1, 1, 7, 0, 0, 0, time.UTC)) {
			t.Errorf("it ran %d times, first at %v", len(runs), runs[0].At)
		}
		if once := tasktest.RequireSubmitted(t, s, double, tasktest.Like(2)); !once.At.Equal(time.Date(2000, 1, 2, 19, 0, 0, 0, time.UTC)) {
			t.Errorf("it ran at %v", once.At)
		}
	})
}

// Middleware of one task that lies outside of its time limit stays there.
func TestOutsideMiddleware(t *testing.T) {
	tasktest.Run(t, func(t *testing.T, s *tasktest.Swarm) {
		s.Start(consumer.Config{}, func(r task.Registrar) error {
			return flaky.Handle(r, func(ctx context.Context, _ int) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}, middleware.OnError(func(_ context.Context, _ *task.Request, err error) error {
				if errors.Is(err, task.ErrTimeLimit) {
					return task.Fail(errBusy)
				}
				return err
			}))
		})
		future := must(flaky.Submit(t.Context(), s, 1, task.WithTimeLimit(time.Minute)))
		s.DrainAll()
		if _, err := future.Get(t.Context()); err == nil || err.Error() != "busy" {
			t.Errorf("the error is %v", err)
		}
	})
}

// The whole way also works in real time, without a t.
func TestOutsideOfABubble(t *testing.T) {
	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, register)
	future := must(double.Submit(t.Context(), s, 21))
	if n, err := future.Get(t.Context()); n != 42 || err != nil {
		t.Errorf("the result is %d, %v", n, err)
	}
	tasktest.RequireSubmitted(t, s, double)
	defer func() {
		if p := fmt.Sprint(recover()); p != "tasktest: Drain needs a testing/synctest bubble: use Run" {
			t.Errorf("it says %q", p)
		}
	}()
	s.Drain()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
