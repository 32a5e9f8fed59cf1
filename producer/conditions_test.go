package producer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// TestConditionsAreRefused shows that tasks with conditions are refused without a store of jobs,
// and that nothing is sent.
func TestConditionsAreRefused(t *testing.T) {
	b := membroker.New()
	results := memresults.New(memresults.Config{})
	p := newProducer(t, producer.Config{Broker: b, Results: results})
	defer func() {
		if err := errors.Join(p.Close(context.Background()), results.Close(context.Background()), b.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()
	heavy := number.With(task.WithWeight(2))
	for name, submit := range map[string]func() error{
		"without a store of jobs": func() error { _, err := heavy.Submit(t.Context(), p, 1); return err },
		"a step": func() error {
			_, err := task.Chain(number, heavy).Submit(t.Context(), p, 1)
			return err
		},
		"a member": func() error {
			_, err := task.Group(number, heavy).Submit(t.Context(), p, 1)
			return err
		},
		"a step beside": func() error {
			_, err := task.OnSuccess(number, heavy).Submit(t.Context(), p, 1)
			return err
		},
		"a workflow": func() error {
			_, err := task.Chain(number, number).Submit(t.Context(), p, 1, task.WithThrottle("q"))
			return err
		},
		"all members of a stream": func() error {
			sum := task.New[task.Members[int], int]("sum")
			_, err := task.Stream(t.Context(), p, func(yield func(int) bool) { yield(1) }, heavy, sum)
			return err
		},
	} {
		if err := submit(); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := b.Stats(t.Context(), "default"); err == nil && n.Ready > 0 {
		t.Errorf("%d tasks were sent", n.Ready)
	}
}
