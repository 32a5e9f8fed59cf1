package revoke_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestUnheardRevocationOfADelayedTask shows that a revoked, delayed task becomes due, so that a
// consumer settles it. A consumer without the revocation does not run it before its time.
func TestUnheardRevocationOfADelayedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, results := membroker.New(), memresults.New(memresults.Config{})
		bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
		p, err := producer.New(producer.Config{Broker: b, Results: results, Logger: quiet()})
		must(err)
		deaf, err := consumer.New(consumer.Config{Broker: b, Results: results, Logger: quiet()})
		must(err)
		begun := time.Now()
		var started []time.Duration
		must(work.Handle(deaf, func(_ context.Context, n int) (int, error) {
			started = append(started, time.Since(begun))
			return n, nil
		}))
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- deaf.Run(running) }()
		_, err = work.Submit(ctx, p, 1, task.WithID("later"), task.WithDelay(time.Hour))
		must(err)
		r, err := revoke.NewRevoker(revoke.RevokerConfig{Events: bus, Broker: b, Queues: []string{"default"}, Logger: quiet()})
		must(err)
		if _, err := r.Revoke(ctx, revoke.Options{}, "later"); stored(err) != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		if len(started) > 0 {
			t.Errorf("a task that is due in an hour was started after %s", started)
		}
		stop()
		must(errors.Join(<-ended, p.Close(ctx), results.Close(ctx), b.Close(ctx), bus.Close(ctx)))
	})
}
