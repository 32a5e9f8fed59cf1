package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/producer"
)

// A consumer with Config.Control can be asked, scaled, paused and stopped from elsewhere, with control.Client or the program
// swarmiji. open.Options.Control makes a bus for that; with Keys only their holders are obeyed.
func Example_control() {
	bus := memevents.New(memevents.Config{})
	defer bus.Close(context.Background())
	_, _, run := inMemory(producer.Config{}, consumer.Config{
		Report: events.Report{NodeID: "node-1"}, Queues: map[string]consumer.QueueConfig{"mail": {Workers: 2}},
		Control: &control.Config{Bus: bus, Logger: slog.New(slog.DiscardHandler)},
	})
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	client, err := control.NewClient(control.ClientConfig{Bus: bus})
	must(err)
	poll(ctx, func() bool { // until it consumes
		rs, err := client.Send(ctx, control.Command{Do: control.DoScale, Queues: []string{"mail"}, Workers: 8},
			control.Wait{Replies: 1, Timeout: 100 * time.Millisecond})
		return err == nil && rs[0].Error == ""
	})
	replies, err := client.Send(ctx, control.Command{Do: control.DoStats}, control.Wait{Replies: 1})
	must(err)
	for _, q := range replies[0].Stats.Queues {
		fmt.Println(replies[0].Node, "has", q.Workers, "workers for", q.Name)
	}
	// Output: node-1 has 8 workers for mail
}
