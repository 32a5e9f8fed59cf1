package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// A task may wait for its time, in the broker, and may be of no use after another.
func ExampleProducer_Submit_delayAndExpiry() {
	remind := task.New[string, time.Time]("remind")

	p, c, run := inMemory(producer.Config{}, consumer.Config{})
	must(remind.Handle(c, func(context.Context, string) (time.Time, error) { return time.Now(), nil }))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	due := time.Now().Add(50 * time.Millisecond)
	later, err := remind.Submit(ctx, p, "tea", task.WithNotBefore(due)) // or task.WithDelay(50*time.Millisecond)
	must(err)
	ran, err := later.Get(ctx)
	fmt.Println("too early:", ran.Before(due), err)

	stale, err := remind.Submit(ctx, p, "yesterday's news", task.WithExpires(time.Now().Add(-time.Minute)))
	must(err)
	_, err = stale.Get(ctx)
	fmt.Println("expired:", errors.Is(err, task.ErrExpired))
	// Output:
	// too early: false <nil>
	// expired: true
}
