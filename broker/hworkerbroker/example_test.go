package hworkerbroker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/broker/hworkerbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// This worker runs jobs that another program queues with LPUSH hworker-jobs-mail
// '["<uuid>",{"to":"a@example.org"}]'.
func Example() {
	b, err := hworkerbroker.New(hworkerbroker.Config{
		Redis:     &redis.UniversalOptions{Addrs: []string{"localhost:6379"}},
		Heartbeat: true, // a mail may take longer than two minutes
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{
		Broker: b,
		// the task of this queue's jobs
		Queues: map[string]consumer.QueueConfig{"mail": {Task: "mail.send"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	type mail struct{ To string }
	send := task.New[mail, bool]("mail.send")
	if err := send.Handle(c, func(_ context.Context, m mail) (bool, error) {
		fmt.Println("to", m.To)
		return true, nil
	}); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := errors.Join(c.Run(ctx), b.Close(context.Background())); err != nil {
		log.Print(err)
	}
}

// This producer queues jobs for workers in any language: LPUSH hworker-jobs-mail
// '["<uuid>",{"To":"a@example.org"}]'.
func Example_producer() {
	b, err := hworkerbroker.New(hworkerbroker.Config{Redis: &redis.UniversalOptions{Addrs: []string{"localhost:6379"}}})
	if err != nil {
		log.Fatal(err)
	}
	p, err := producer.New(producer.Config{
		Broker: b, Router: router.Static("mail"), Wire: serializer.Wire{Serializers: []serializer.Serializer{serializer.JSON{}}, QueueFormats: map[string]serializer.Format{"mail": serializer.BareFormat{}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	type mail struct{ To string }
	ctx := context.Background()
	if _, err := task.New[mail, bool]("mail.send").Submit(ctx, p, mail{"a@example.org"}); err != nil {
		log.Print(err)
	}
	if err := errors.Join(p.Close(ctx), b.Close(ctx)); err != nil {
		log.Print(err)
	}
}

// New reports settings that cannot work before it connects.
func ExampleNew() {
	_, err := hworkerbroker.New(hworkerbroker.Config{
		Redis:   &redis.UniversalOptions{Addrs: []string{"one:6379", "two:6379"}},
		Timeout: -1,
	})
	fmt.Println(err)
	// Output:
	// hworkerbroker: a cluster is not supported: the keys of a queue are in different slots
	// hworkerbroker: timeout -1ns is below 100ms
}
