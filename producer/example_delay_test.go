package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A task may wait for its time, in the broker, and may be of no use after another.
func ExampleProducer_Submit_delayAndExpiry() {
	remind := task.New[string, time.Time]("remind")

	s := tasktest.New(nil)
	defer s.Close()
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return remind.Handle(r, func(context.Context, string) (time.Time, error) { return time.Now(), nil })
	})

	ctx := context.Background()
	due := time.Now().Add(50 * time.Millisecond)
	// or task.WithDelay(50*time.Millisecond)
	later, err := remind.Submit(ctx, s, "tea", task.WithNotBefore(due))
	if err != nil {
		panic(err)
	}
	ran, err := later.Get(ctx)
	fmt.Println("too early:", ran.Before(due), err)

	stale, err := remind.Submit(ctx, s, "yesterday's news", task.WithExpires(time.Now().Add(-time.Minute)))
	if err != nil {
		panic(err)
	}
	_, err = stale.Get(ctx)
	fmt.Println("expired:", errors.Is(err, task.ErrExpired))
	// Output:
	// too early: false <nil>
	// expired: true
}
