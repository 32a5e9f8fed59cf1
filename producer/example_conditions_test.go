package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// site holds the parts for tasks with conditions: a producer and a consumer that know the jobs, and
// a runner that sends the tasks of a queue. In real programs these are in several processes, and
// the jobs are in SQLite or PostgreSQL. run starts them, and done ends them.
type site struct {
	*producer.Producer
	consumer *consumer.Consumer
	jobs     *jobs.Service
	run      func() (done func())
}

func withJobs(q queue.Queue) *site {
	b, results := membroker.New(), memresults.New(memresults.Config{})
	store, err := memjobs.New(memjobs.Config{})
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	p, err := producer.New(producer.Config{Broker: b, Results: results, Jobs: service})
	if err != nil {
		panic(err)
	}
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Middleware: []middleware.Middleware{runner.Current(service)}})
	if err != nil {
		panic(err)
	}
	r, err := runner.New(runner.Config{Service: service, Queue: &q, Submit: p, Results: results})
	if err != nil {
		panic(err)
	}
	return &site{p, c, service, func() func() {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		go func() { ended <- c.Run(ctx) }()
		go func() { ended <- r.Run(ctx) }()
		return func() {
			stop()
			if err := errors.Join(<-ended, <-ended); err != nil {
				panic(err)
			}
			ctx := context.Background()
			if err := errors.Join(p.Close(ctx), service.Close(ctx), store.Close(ctx), results.Close(ctx), b.Close(ctx)); err != nil {
				panic(err)
			}
		}
	}}
}

// The tasks of one sequence key run one at a time, in the order of their submission. Tasks of other
// keys run beside them.
func ExampleProducer_Submit_sequenceKey() {
	s := withJobs(queue.Queue{Name: task.DefaultThrottle})
	post := task.New[string, string]("ledger.post")
	var book []string // needs no lock: no two of the tasks run at a time
	if err := post.Handle(s.consumer, func(_ context.Context, entry string) (string, error) {
		book = append(book, entry)
		return strings.Join(book, ", "), nil
	}); err != nil {
		panic(err)
	}
	defer s.run()()

	ctx := context.Background()
	var last *task.Future[string]
	for _, entry := range []string{"+100", "-30", "-50"} {
		var err error
		last, err = post.Submit(ctx, s, entry, task.WithSequenceKey("account 7"))
		if err != nil {
			panic(err)
		}
	}
	fmt.Println(last.Get(ctx))
	// Output: +100, -30, -50 <nil>
}

// While a task of a unique key is not over, a second one is refused, and the error names the first.
func ExampleProducer_Submit_uniqueKey() {
	s := withJobs(queue.Queue{Name: task.DefaultThrottle})
	report := task.New[string, bool]("report.make")
	begun, end := make(chan struct{}), make(chan struct{})
	if err := report.Handle(s.consumer, func(context.Context, string) (bool, error) {
		close(begun)
		<-end
		return true, nil
	}); err != nil {
		panic(err)
	}
	defer s.run()()

	ctx := context.Background()
	first, err := report.Submit(ctx, s, "May", task.WithUniqueKey("May"))
	if err != nil {
		panic(err)
	}
	<-begun
	_, err = report.Submit(ctx, s, "May", task.WithUniqueKey("May"))
	var taken *task.TakenError
	fmt.Println(errors.Is(err, jobs.ErrKeyTaken), errors.As(err, &taken) && taken.Task == first.ID())
	close(end)
	fmt.Println(first.Get(ctx))
	// Output:
	// true true
	// true <nil>
}

// The sum of the weights of running tasks is at most the limit of their queue. A task with weight 0
// always fits.
func ExampleProducer_Submit_weight() {
	s := withJobs(queue.Queue{Name: task.DefaultThrottle, Limit: 4})
	var mu sync.Mutex
	running, most := 0, 0
	convert := task.New[int, bool]("video.convert")
	if err := convert.Handle(s.consumer, func(_ context.Context, cores int) (bool, error) {
		mu.Lock()
		running += cores
		most = max(most, running)
		mu.Unlock()
		<-time.After(time.Millisecond)
		mu.Lock()
		running -= cores
		mu.Unlock()
		return true, nil
	}); err != nil {
		panic(err)
	}
	defer s.run()()

	ctx := context.Background()
	var all []*task.Future[bool]
	for _, cores := range []int{2, 1, 3, 2, 4, 1} {
		f, err := convert.Submit(ctx, s, cores, task.WithWeight(float64(cores)))
		if err != nil {
			panic(err)
		}
		all = append(all, f)
	}
	for _, f := range all {
		_, err := f.Get(ctx)
		if err != nil {
			panic(err)
		}
	}
	fmt.Println("never more than 4 cores:", most <= 4)
	// Output: never more than 4 cores: true
}

// Outside of its windows a task waits, as a job that can say why.
func ExampleProducer_Submit_windows() {
	s := withJobs(queue.Queue{Name: task.DefaultThrottle})
	purge := task.New[string, bool]("logs.purge")
	if err := purge.Handle(s.consumer, func(context.Context, string) (bool, error) { return true, nil }); err != nil {
		panic(err)
	}
	defer s.run()()

	ctx := context.Background()
	day := time.Now().UTC().AddDate(0, 0, 3).Weekday()
	f, err := purge.Submit(ctx, s, "all", task.WithWindows(fmt.Sprintf("%s 03:00-04:00", day)))
	if err != nil {
		panic(err)
	}
	waiting, err := s.jobs.List(ctx, jobs.Filter{Name: purge.Name(), Key: jobs.KeyOfTask(f.ID())})
	if err != nil {
		panic(err)
	}
	opens := waiting[0].NextRun.UTC()
	fmt.Println(waiting[0].State, opens.Weekday() == day, opens.Format("15:04"))
	// Output: QUEUED true 03:00
}

// A throttle is a queue of jobs with a runner and a limit of its own. The broker's queue is
// separate: these tasks are all in one.
func ExampleProducer_Submit_throttle() {
	s := withJobs(queue.Queue{Name: "mail", Limit: 1})
	send := task.New[string, string]("mail.send", task.WithThrottle("mail"))
	busy := make(chan struct{}, 1) // the mail server takes one connection
	if err := send.Handle(s.consumer, func(_ context.Context, to string) (string, error) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			return "sent to " + to, nil
		default:
			return "", errors.New("busy")
		}
	}); err != nil {
		panic(err)
	}
	defer s.run()()

	ctx := context.Background()
	futures, err := send.SubmitAll(ctx, s, []string{"ada", "bob", "eve"})
	if err != nil {
		panic(err)
	}
	for _, f := range futures {
		fmt.Println(f.Get(ctx))
	}
	// Output:
	// sent to ada <nil>
	// sent to bob <nil>
	// sent to eve <nil>
}
