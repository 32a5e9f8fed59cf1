package producer_test

import (
	"context"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// sink is a broker that confirms and drops messages, to measure only the producer.
type sink struct{ broker.Broker }

func (sink) Publish(context.Context, string, *broker.Message) error { return nil }

func BenchmarkSubmit(b *testing.B) {
	p, err := producer.New(producer.Config{Broker: sink{membroker.New()}})
	if err != nil {
		b.Fatal(err)
	}
	add := task.New[int, int]("add", task.WithMaxRetries(3))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Submit(ctx, add.Call(1)); err != nil {
			b.Fatal(err)
		}
	}
}
