package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// friday is the current time of the examples.
var friday = time.Date(2026, 11, 20, 14, 50, 0, 0, time.UTC)

// A program adds entries to a schedule, and any number of processes run listeners.
func Example() {
	store, err := memschedule.New(memschedule.Config{Name: "app-tasks"})
	if err != nil {
		fmt.Println(err)
		return
	}
	greet := task.New[string, task.None]("greet")
	greeted := make(chan string)
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := greet.Handle(l, func(_ context.Context, name string) (task.None, error) {
		greeted <- "Hello " + name
		return task.None{}, nil
	}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Add(ctx, schedule.In("1 second"), greet.Call("in a second")); err != nil {
		fmt.Println(err)
	}
	if _, err := s.Add(ctx, schedule.Now(), greet.Call("now")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-greeted)
	fmt.Println(<-greeted)
	stop()
	fmt.Println(<-ended)
	// Output:
	// Hello now
	// Hello in a second
	// <nil>
}

// Times can be phrases, Go times or cron fields. The result tells how they were understood.
func ExampleSchedule_Add() {
	store, err := memschedule.New(memschedule.Config{Now: func() time.Time { return friday }})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := task.New[string, task.None]("report")
	for _, when := range []schedule.When{
		schedule.At("7pm tomorrow"),
		schedule.In("5 minutes"),
		schedule.Every("weekday at 9am"),
		schedule.ByCron("* * * 3/2 12 0 0"),
		schedule.At("7pm yesterday"),
	} {
		added, err := s.Add(context.Background(), when, report.Call("sales"), schedule.WithMisfire(schedule.MisfireSkip))
		if err != nil {
			fmt.Println("refused")
			continue
		}
		fmt.Println(added.Next.Format(time.RFC3339), added.Spec)
	}
	// Adding the entry again changes nothing.
	again, err := s.Add(context.Background(), schedule.At("7pm tomorrow"), report.Call("sales"), schedule.WithMisfire(schedule.MisfireSkip))
	fmt.Println(again.New, again.Echo, err)
	// Output:
	// 2026-11-21T19:00:00Z 2026 11 21 * 19 0 0
	// 2026-11-20T14:55:00Z 2026 11 20 * 14 55 0
	// 2026-11-23T09:00:00Z * * * 1-5 9 0 0
	// 2026-12-02T12:00:00Z * * * 3/2 12 0 0
	// refused
	// false Sat 21 Nov 2026 19:00 UTC, in 28h10m <nil>
}

// A recurring task stores a state for its next run.
func ExampleState() {
	type position struct{ Row int }
	store, err := memschedule.New(memschedule.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	feed := task.New[task.None, task.None]("feed")
	rows := make(chan int)
	if err := feed.Handle(l, func(ctx context.Context, _ task.None) (task.None, error) {
		at, err := schedule.State[position](ctx)
		if err != nil {
			return task.None{}, err
		}
		rows <- at.Row
		at.Row += 100
		return task.None{}, schedule.SetState(ctx, at)
	}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Add(ctx, schedule.Every("second"), feed.Call(task.None{})); err != nil {
		fmt.Println(err)
	}
	fmt.Println("from row", <-rows)
	fmt.Println("from row", <-rows)
	stop()
	fmt.Println(<-ended)
	// Output:
	// from row 0
	// from row 100
	// <nil>
}

// A listener can submit ticks as tasks. Consumers then run them with queues, retries, limits and
// results.
func ExampleForward() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	mem, results := membroker.New(), memresults.New(memresults.Config{})
	defer mem.Close(context.Background())
	defer results.Close(context.Background())
	p, err := producer.New(producer.Config{Broker: mem, Results: results})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close(context.Background())
	c, err := consumer.New(consumer.Config{Broker: mem, Results: results})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := task.New[[]string, int]("report")
	if err := report.Handle(c, func(_ context.Context, of []string) (int, error) { return len(of), nil }); err != nil {
		fmt.Println(err)
		return
	}
	store, err := memschedule.New(memschedule.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Submit: p})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The payload does not contain the types of the task, so the listener needs its definition.
	if err := schedule.Forward(l, report); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- l.Run(ctx) }()

	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	added, err := s.Add(ctx, schedule.Now(), report.Call([]string{"sales"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Every process can calculate the id in advance.
	id := schedule.TickID(s.Name(), added.ID, added.Next)
	fmt.Println(task.FutureOf[int](p.Pending(id)).Get(ctx))
	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// 1 <nil>
	// <nil> <nil>
}
