package consumer_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestFollowersAreInTheirQueuesFormat shows that a successor is encoded in the format that
// Wire.QueueFormats sets for its queue.
func TestFollowersAreInTheirQueuesFormat(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := membroker.NewServer(membroker.Config{})
	p, err := producer.New(producer.Config{Broker: server.Connect()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(ctx)
	wire := serializer.Wire{QueueFormats: map[string]serializer.Format{"foreign": serializer.JSONFormat{}}}
	c, err := consumer.New(consumer.Config{Broker: server.Connect(), Wire: wire, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	first := task.New[int, int]("first")
	if err := first.Handle(c, func(_ context.Context, i int) (int, error) { return i, nil }); err != nil {
		t.Fatal(err)
	}
	subs := make(map[string]broker.Subscription) // subscribing makes the queues
	for _, queue := range []string{"other", "foreign"} {
		if subs[queue], err = server.Connect().Subscribe(ctx, queue, broker.SubscribeOptions{Prefetch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	call := first.Call(1)
	call.Then = []task.Link{{Name: "ours", Queue: "other"}, {Name: "theirs", Queue: "foreign"}}
	if _, err := p.Submit(ctx, call); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]bool{"other": false, "foreign": true} {
		d, err := subs[queue].Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = serializer.JSONFormat{}.Decode(d.Message())
		if got := err == nil; got != want {
			t.Errorf("in queue %s a message of content type %q: JSON is %v, want %v", queue, d.Message().ContentType, got, want)
		}
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		if err := subs[queue].Close(ctx); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
