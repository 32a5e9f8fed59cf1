package consumer_test

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
)

// inMemory makes a producer and a consumer that meet in memory, unless they are given a broker. Handlers are registered
// with c, then run starts it, and done ends everything. In real programs the two are in different processes, and broker and
// result store belong to a server.
func inMemory(pc producer.Config, cc consumer.Config) (p *producer.Producer, c *consumer.Consumer, run func() (done func())) {
	if pc.Broker == nil {
		b := membroker.New()
		pc.Broker, cc.Broker = b, b
	}
	results := memresults.New(memresults.Config{})
	pc.Results, cc.Results = results, results
	p, err := producer.New(pc)
	must(err)
	c, err = consumer.New(cc)
	must(err)
	return p, c, func() func() {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		return func() {
			stop()
			must(<-ended)
			must(errors.Join(p.Close(context.Background()), results.Close(context.Background()), pc.Broker.Close(context.Background())))
		}
	}
}

// soon bounds every wait of an example.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// settled waits until the broker holds nothing for a consumer any more.
func settled(ctx context.Context, b *membroker.Broker) {
	poll(ctx, func() bool {
		s, err := b.Stats(ctx, "default")
		must(err)
		return s.Held == 0
	})
}

// waitForDead waits for the first dead letter.
func waitForDead(ctx context.Context, b *membroker.Broker) (first broker.Dead) {
	poll(ctx, func() bool {
		dead, err := broker.ListDead(ctx, b, "default", 1)
		must(err)
		if len(dead) > 0 {
			first = dead[0]
		}
		return len(dead) > 0
	})
	return first
}

func poll(ctx context.Context, done func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			panic("the example waited in vain")
		}
	}
}
