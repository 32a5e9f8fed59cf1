// Schedule has tasks run at times of their own: once, again and again, and with a state that each
// run hands to the next.
//
//	go run ./examples/schedule
//
// Where redisschedule or sqlschedule stands in for memschedule the schedule outlives the program,
// and any number of processes listen to it. It needs no server and prints:
//
//	understood: * * * 1-5 9 0 0
//	once: 1 + 2 = 3
//	feed: from row 0
//	feed: from row 100
//	feed: from row 200
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	_ "time/tzdata" // machines without zone files

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

type Pair struct{ A, B int }

// Position is the state of the feed, which one run leaves for the next.
type Position struct{ Row int }

var (
	Add  = task.New[Pair, int]("demo.add")
	Feed = task.New[task.None, task.None]("demo.feed")
)

func add(_ context.Context, p Pair) (int, error) { return p.A + p.B, nil }

func main() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{})
	check(err)
	c, err := swarm.Consumer(consumer.Config{})
	check(err)
	check(Add.Handle(c, add))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 3)
	go func() { ended <- c.Run(running) }()

	// This listener submits due tasks. Consumers run them, with retries and results.
	tasks, err := memschedule.New(memschedule.Config{Name: "tasks"})
	check(err)
	submits, err := schedule.NewListener(schedule.ListenerConfig{Store: tasks, Submit: p})
	check(err)
	check(schedule.Forward(submits, Add))
	go func() { ended <- submits.Run(running) }()

	times, err := schedule.New(schedule.Config{Store: tasks})
	check(err)
	weekdays, err := times.Add(ctx, schedule.Every("weekday at 9am"), Add.Call(Pair{A: 40, B: 2}))
	check(err)
	fmt.Println("understood:", weekdays.Spec)
	once, err := times.Add(ctx, schedule.In("1 second"), Add.Call(Pair{A: 1, B: 2}))
	check(err)
	id := schedule.TickID(times.Name(), once.ID, once.Next) // each run is a task of a known id
	sum, err := task.FutureOf[int](p.Pending(id)).Get(ctx)
	check(err)
	fmt.Println("once: 1 + 2 =", sum)

	// This one runs handlers itself, and lets each run hand something to the next.
	feeds, err := memschedule.New(memschedule.Config{Name: "feeds"})
	check(err)
	inPlace, err := schedule.NewListener(schedule.ListenerConfig{Store: feeds})
	check(err)
	rows := make(chan int, 10)
	check(Feed.Handle(inPlace, func(ctx context.Context, _ task.None) (task.None, error) {
		at, err := schedule.State[Position](ctx)
		if err != nil {
			return task.None{}, err
		}
		rows <- at.Row
		return task.None{}, schedule.SetState(ctx, Position{Row: at.Row + 100})
	}))
	go func() { ended <- inPlace.Run(running) }()
	often, err := schedule.New(schedule.Config{Store: feeds})
	check(err)
	_, err = often.Add(ctx, schedule.Every("second"), Feed.Call(task.None{}))
	check(err)
	for range 3 {
		fmt.Println("feed: from row", <-rows)
	}

	stop()
	check(errors.Join(<-ended, <-ended, <-ended, p.Close(ctx), tasks.Close(ctx), feeds.Close(ctx), swarm.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
