package faulttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/ledger"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// recovery limits the time until tasks run again after the broker is up again.
const recovery = 10 * time.Second

func TestKilledBrokerLosesNothingConfirmed(t *testing.T) {
	each(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		f := newFleet(t, node.URL())
		consumers := []*program{f.consumer(e.quick(settings{"TASK_MS": 10})), f.consumer(e.quick(settings{"TASK_MS": 10}))}
		p := f.producer(settings{"RATE": 150, "CONCURRENCY": 16})
		f.await("load", atLeast(100, ledger.Finished))
		f.awaitAge(e)
		node.Kill()
		if err := node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		up := time.Now()
		f.awaitWithin(recovery, "a task started after the broker came back", startedAfter(up))
		recovered := time.Now().Add(recovery) // by then the other consumer has its connection back too
		f.await("load again", atLeast(len(f.history().Tasks(ledger.Finished))+100, ledger.Finished))
		p.terminate()
		f.await("all confirmed tasks finished", nothingLost)
		f.drain(consumers...)
		f.check(ledger.NoLoss, ledger.NoGhosts, ledger.RepeatsOnlyOf(submittedBefore(f.history(), recovered)))
		f.awaitEmpty(f.connect(f.url).Broker)
	})
}

func TestFrozenBrokerHoldsNobody(t *testing.T) {
	inTurn(t, func(t *testing.T, e *engine) {
		node := e.require(t)
		f := newFleet(t, node.URL())
		p, err := producer.New(producer.Config{Broker: f.connect(f.url).Broker, Router: router.Static(f.queue), Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		work := task.New[struct{}, struct{}]("soak.work", task.WithIgnoreResult(true))
		submit := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := work.Submit(ctx, p, struct{}{})
			return err
		}
		if err := submit(patience); err != nil {
			t.Fatal(err)
		}
		before := runtime.NumGoroutine()
		node.Pause()
		t.Cleanup(node.Resume)
		const limit, submits = time.Second, 50
		for range 3 {
			var wg sync.WaitGroup
			begin := time.Now()
			for range submits {
				wg.Go(func() {
					err := submit(limit)
					if !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable) {
						t.Errorf("a submission to a frozen broker: %v; wanted that its outcome is unknown or the broker away", err)
					}
				})
			}
			wg.Wait()
			if d := time.Since(begin); d > limit+15*time.Second {
				t.Errorf("submissions with a deadline of %v took %v", limit, d)
			}
		}
		node.Resume()
		if err := submit(patience); err != nil {
			t.Errorf("after the broker woke up: %v", err)
		}
		testwait.UntilNil(t, "submissions leave no goroutines behind", func() error {
			if now := runtime.NumGoroutine(); now > before+10 {
				return fmt.Errorf("%d goroutines before the broker froze, %d after %d submissions", before, now, 3*submits)
			}
			return nil
		})
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
