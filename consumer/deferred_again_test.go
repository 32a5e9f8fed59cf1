package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestAcceptedAnswerOutlivesASnooze shows that an accepted answer still counts after a stop of its
// handler, a snooze and a failure. The later attempts expect no answer.
func TestAcceptedAnswerOutlivesASnooze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err := jobs.New(jobs.Config{Store: memory})
		must0(t, err)
		b := newTable(t, func(c *consumer.Config) { c.Deferrals = deferralsOf(t, service) })
		var starts atomic.Int64
		def := task.New[int, int]("ask")
		handle := func(ctx context.Context, i int) (int, error) {
			switch starts.Add(1) {
			case 1:
				if err := task.Expect(ctx, "k"); err != nil {
					return 0, err
				}
				<-ctx.Done()
				return 0, context.Cause(ctx)
			case 2:
				return 0, task.Snooze(time.Second)
			}
			return 0, task.Fail(errors.New("no"))
		}
		must0(t, def.Handle(b.c, handle))
		b.run()
		f, err := def.Submit(t.Context(), b.p, 1)
		must0(t, err)
		time.Sleep(time.Second)
		if _, err := service.Complete(t.Context(), "ask", "k", 7); err != nil {
			t.Fatal(err)
		}
		_ = b.stop()
		second, err := consumer.New(consumer.Config{Broker: b.server.Connect(), Results: b.store, Deferrals: deferralsOf(t, service), Logger: slog.New(slog.DiscardHandler)})
		must0(t, err)
		must0(t, def.Handle(second, handle))
		b.c = second
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if n, err := f.Get(ctx); n != 7 || err != nil || starts.Load() != 3 {
			t.Errorf("the task has ended with %d, %v, after %d starts; want the accepted answer", n, err, starts.Load())
		}
		b.end()
		_ = service.Close(t.Context())
		_ = memory.Close(t.Context())
	})
}

// TestAcceptedAnswerOutlivesItsConsumer shows that the next delivery gets an accepted answer. The
// first consumer ends during the handler, and no other one runs for more than a day.
func TestAcceptedAnswerOutlivesItsConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err := jobs.New(jobs.Config{Store: memory})
		must0(t, err)
		b := newTable(t, func(c *consumer.Config) { c.Deferrals = deferralsOf(t, service) })
		var starts atomic.Int64
		def := task.New[int, int]("ask")
		handle := func(ctx context.Context, i int) (int, error) {
			if starts.Add(1) > 1 {
				time.Sleep(time.Minute) // meanwhile other consumers receive the due deferrals
			}
			if err := task.Expect(ctx, "k"); err != nil {
				return 0, err
			}
			if starts.Load() == 1 {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			return 0, task.Defer("k")
		}
		must0(t, def.Handle(b.c, handle))
		b.run()
		f, err := def.Submit(t.Context(), b.p, 1)
		must0(t, err)
		time.Sleep(time.Second)
		if _, err := service.Complete(t.Context(), "ask", "k", 7); err != nil {
			t.Fatal(err)
		}
		_ = b.stop()
		time.Sleep(task.DefaultAnswerWithin + time.Hour)
		b.c, err = consumer.New(consumer.Config{Broker: b.server.Connect(), Results: b.store, Deferrals: deferralsOf(t, service), Logger: slog.New(slog.DiscardHandler)})
		must0(t, err)
		must0(t, def.Handle(b.c, handle))
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
		defer cancel()
		if n, err := f.Get(ctx); n != 7 || err != nil || starts.Load() != 2 {
			t.Errorf("the task has ended with %d, %v, after %d starts; want the accepted answer", n, err, starts.Load())
		}
		b.end()
		_ = service.Close(t.Context())
		_ = memory.Close(t.Context())
	})
}
