// Schedule has tasks run at times of their own.
//
//	go run ./examples/schedule
//
// needs no server. A schedule is kept in memory; what is due is submitted as a task of the quickstart, and run by a consumer in this process. With
// -broker it is run by a worker elsewhere:
//
//	go run ./examples/worker   -broker redis://localhost:6379
//	go run ./examples/schedule -broker redis://localhost:6379
//
// Where redisschedule or sqlschedule stands in for memschedule the schedule outlives the program, and any number of processes listen to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

type Pair struct{ A, B int }

// Position is where the feed stands: what one of its runs hands to the next.
type Position struct{ Row int }

var (
	Add  = task.New[Pair, int]("demo.add", task.WithTimeLimit(10*time.Second)) // as in the quickstart
	Feed = task.New[task.None, task.None]("demo.feed")
)

func main() {
	url := flag.String("broker", "mem://", "`URL` of the broker; with mem:// the tasks run in this process")
	in := flag.String("in", "5 seconds", "when the one-shot is to run, as in \"in `DURATION`\"")
	wait := flag.Duration("wait", 30*time.Second, "how long to wait for its result")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *in, *wait); err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, url, in string, wait time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	swarm, err := open.Open(ctx, url, open.Options{Name: "schedule"})
	if err != nil {
		return err
	}
	defer closing(&err, swarm.Close)
	p, err := swarm.Producer(producer.Config{})
	if err != nil {
		return err
	}
	defer closing(&err, p.Close)
	if strings.HasPrefix(url, "mem:") {
		c, err := swarm.Consumer(consumer.Config{})
		if err != nil {
			return err
		}
		if err := Add.Handle(c, func(_ context.Context, p Pair) (int, error) { return p.A + p.B, nil }); err != nil {
			return err
		}
		defer closing(&err, start(c.Run))
	}

	store, err := memschedule.New(memschedule.Config{Name: "demo"})
	if err != nil {
		return err
	}
	defer closing(&err, store.Close)
	if err := submitted(ctx, store, p, in); err != nil {
		return err
	}
	return inPlace(ctx)
}

// submitted has tasks submitted when they are due: consumers run them.
func submitted(ctx context.Context, store schedule.Store, p *producer.Producer, in string) (err error) {
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Submit: p})
	if err != nil {
		return err
	}
	if err := schedule.Forward(l, Add); err != nil {
		return err
	}
	defer closing(&err, start(l.Run))

	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		return err
	}
	for _, when := range []schedule.When{schedule.At("7pm tomorrow"), schedule.Every("weekday at 9am"), schedule.ByCron("* 1 1 * 0 0 0")} {
		added, err := s.Add(ctx, when, Add.Call(Pair{A: 40, B: 2}))
		if err != nil {
			return err
		}
		fmt.Println("understood:", added.Spec)
	}
	once, err := s.Add(ctx, schedule.In(in), Add.Call(Pair{A: 1, B: 2}))
	if err != nil {
		return err
	}
	// Each run of an entry is a task whose id is known beforehand.
	id := schedule.TickID(s.Name(), once.ID, once.Next)
	sum, err := task.FutureOf[int](p.Pending(id)).Get(ctx)
	if err != nil {
		return err
	}
	fmt.Println("one-shot: 1 + 2 =", sum)
	return nil
}

// inPlace runs a handler where the listener is, and lets each run hand something to the next.
func inPlace(ctx context.Context) (err error) {
	store, err := memschedule.New(memschedule.Config{Name: "feeds"})
	if err != nil {
		return err
	}
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store})
	if err != nil {
		return err
	}
	rows := make(chan int, 3)
	if err := Feed.Handle(l, func(ctx context.Context, _ task.None) (task.None, error) {
		at, err := schedule.State[Position](ctx)
		if err != nil {
			return task.None{}, err
		}
		select {
		case rows <- at.Row:
		default: // nobody looks any more
		}
		return task.None{}, schedule.SetState(ctx, Position{Row: at.Row + 100})
	}); err != nil {
		return err
	}
	defer closing(&err, start(l.Run))
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		return err
	}
	feed, err := s.Add(ctx, schedule.Every("second"), Feed.Call(task.None{}))
	if err != nil {
		return err
	}
	for range 3 {
		select {
		case row := <-rows:
			fmt.Println("feed: from row", row)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	_, err = s.Remove(ctx, feed.ID)
	return err
}

// start runs something. What it returns ends that, and waits for it.
func start(run func(context.Context) error) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func(context.Context) error {
		cancel()
		return <-ended
	}
}

// closing closes something at the end of a function, which fails if that does.
func closing(err *error, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	*err = errors.Join(*err, end(ctx))
}
