package consumer_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/tasktest"
)

// Clients can query, scale, pause and stop a consumer with Config.Control, with control.Client or
// the program swarmiji. open.Options.Control makes a bus for that; with Keys the consumer accepts
// only commands of holders of a key.
func Example_control() {
	bus := memevents.New(memevents.Config{})
	defer bus.Close(context.Background())
	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{
		Report: events.Report{NodeID: "node-1"}, Queues: map[string]consumer.QueueConfig{"mail": {Workers: 2}},
		Control: &control.Config{Bus: bus, Logger: slog.New(slog.DiscardHandler)},
	}, nil)

	ctx := context.Background()
	client, err := control.NewClient(control.ClientConfig{Bus: bus})
	if err != nil {
		panic(err)
	}
	scale := control.Command{Do: control.DoScale, Queues: []string{"mail"}, Workers: 8}
	if _, err := client.Send(ctx, scale, control.Wait{Replies: 1}); err != nil {
		panic(err)
	}
	replies, err := client.Send(ctx, control.Command{Do: control.DoStats}, control.Wait{Replies: 1})
	if err != nil {
		panic(err)
	}
	for _, q := range replies[0].Stats.Queues {
		fmt.Println(replies[0].Node, "has", q.Workers, "workers for", q.Name)
	}
	// Output: node-1 has 8 workers for mail
}
