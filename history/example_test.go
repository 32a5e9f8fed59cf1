package history_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var send = task.New[string, task.None]("mail.send", task.WithMaxRetries(0), task.WithIgnoreResult(true))

// A recorder listens to the events of a program, and a query finds the task that failed. A program
// with a database uses sqlhistory instead of memhistory.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	queues := membroker.New()
	defer queues.Close(context.Background())
	// the recorder may begin to listen later
	bus := memevents.New(memevents.Config{Retain: events.Retention{Age: time.Hour}})

	store, err := memhistory.New(memhistory.Config{})
	check(err)
	recorder, err := history.NewRecorder(history.RecorderConfig{Bus: bus, Store: store})
	check(err)
	c, err := consumer.New(consumer.Config{Broker: queues, Events: bus})
	check(err)
	check(send.Handle(c, func(_ context.Context, to string) (task.None, error) {
		if to == "" {
			return task.None{}, task.Named("mail.NoAddress", errors.New("the letter has no address"))
		}
		return task.None{}, nil
	}))
	ended := make(chan error, 2)
	go func() { ended <- recorder.Run(ctx) }()
	go func() { ended <- c.Run(ctx) }()

	p, err := producer.New(producer.Config{Broker: queues, Events: bus})
	check(err)
	defer p.Close(context.Background())
	for _, to := range []string{"ada@example.org", "", "alan@example.org"} {
		_, err := send.Submit(ctx, p, to)
		check(err)
	}

	q, err := history.Parse("state:failed name:mail.* since:1h")
	check(err)
	var found []history.Record
	for len(found) == 0 {
		<-time.After(20 * time.Millisecond) // the recorder writes ten times a second
		page, err := store.Page(ctx, q, history.PageOptions{})
		check(err)
		found = page.Records
	}
	fmt.Println(found[0].Name, found[0].Class, found[0].Error)
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// mail.send mail.NoAddress the letter has no address
	// <nil> <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
