package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestDeferredRevokedWithoutConsumer shows that a deferred task that was revoked while no consumer
// ran ends when a consumer starts, before its answer comes.
func TestDeferredRevokedWithoutConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memjobs.New(memjobs.Config{})
		must0(t, err)
		service, err := jobs.New(jobs.Config{Store: memory})
		must0(t, err)
		bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
		first, err := revoke.New(revoke.Config{Events: bus})
		must0(t, err)
		b := newTable(t, func(c *consumer.Config) { c.Deferrals, c.Revocations = deferralsOf(t, service), first })
		def := task.New[int, int]("ask")
		handle := func(context.Context, int) (int, error) { return 0, task.Defer("k") }
		must0(t, def.Handle(b.c, handle))
		b.run()
		f, err := def.Submit(t.Context(), b.p, 1)
		must0(t, err)
		synctest.Wait()
		must0(t, b.stop())
		must0(t, first.Close(t.Context()))

		revoker, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus})
		must0(t, err)
		if _, err := revoker.Revoke(t.Context(), revoke.Options{}, f.ID()); !errors.Is(err, revoke.ErrUnheard) {
			t.Fatal(err)
		}
		second, err := revoke.New(revoke.Config{Events: bus})
		must0(t, err)
		b.c, err = consumer.New(consumer.Config{
			Broker: b.server.Connect(), Results: b.store, Deferrals: deferralsOf(t, service), Revocations: second, Logger: slog.New(slog.DiscardHandler),
		})
		must0(t, err)
		must0(t, def.Handle(b.c, handle))
		began := time.Now()
		b.run()
		if _, err := f.Get(t.Context()); !errors.Is(err, task.ErrRevoked) || time.Since(began) > time.Minute {
			t.Errorf("the task has ended after %v with %v", time.Since(began), err)
		}
		b.end()
		must0(t, second.Close(t.Context()))
		must0(t, bus.Close(t.Context()))
		must0(t, service.Close(t.Context()))
		must0(t, memory.Close(t.Context()))
	})
}
