package runner_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/memjobs"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// Payment is the data of the jobs in this example.
type Payment struct {
	Order  string `json:"order"`
	Try    int    `json:"try"`
	Number int    `json:"number,omitempty"` // assigned by the bank
}

// bank is a slow external service: it accepts requests and answers later, over another connection.
type bank struct{ asked chan string }

func (b *bank) charge(_ context.Context, key string) error {
	b.asked <- key
	return nil
}

// withPayments runs a runner of the queue until fn returns.
func withPayments(register func(*runner.Runner) error, fn func(ctx context.Context, s *jobs.Service)) {
	ctx, stop := context.WithCancel(context.Background())
	store, err := memjobs.New(memjobs.Config{}) // or sqljobs, for SQLite and PostgreSQL
	if err != nil {
		panic(err)
	}
	service, err := jobs.New(jobs.Config{Store: store})
	if err != nil {
		panic(err)
	}
	defer service.Close(context.Background())
	worker, err := runner.New(runner.Config{Service: service, Queue: &queue.Queue{Name: "payments", Limit: 10}})
	if err != nil {
		panic(err)
	}
	if err := register(worker); err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	fn(ctx, service)
	stop()
	if err := <-ended; err != nil {
		panic(err)
	}
}

// ended waits until a job is over.
func ended(ctx context.Context, s *jobs.Service, id jobs.ID) jobs.Job {
	for {
		j, err := s.Query(ctx, id)
		if err != nil {
			panic(err)
		}
		if j.State.Over() {
			return j
		}
		<-time.After(time.Millisecond)
	}
}

// A job sends a payment request to a bank and receives the answer later. While it waits it is only
// a row in a database.
func ExampleType() {
	b := &bank{asked: make(chan string)}
	payment := runner.Type[Payment, int]{
		Name:    "payment",
		Key:     func(p Payment) string { return "order " + p.Order },
		Request: func(ctx context.Context, p Payment) error { return b.charge(ctx, "order "+p.Order) },
		Response: func(_ context.Context, p Payment, number int) (Payment, error) {
			p.Number = number
			return p, nil
		},
		Timeout: time.Hour,
	}
	withPayments(payment.Register, func(ctx context.Context, s *jobs.Service) {
		id, err := payment.Create(ctx, s, "payments", Payment{Order: "A17"})
		if err != nil {
			panic(err)
		}
		// Any process may receive the answer, by HTTP or as a message.
		receipt, err := s.Complete(ctx, "payment", <-b.asked, 4711)
		fmt.Println(receipt.Kind, err)
		j := ended(ctx, s, id)
		fmt.Println(j.State, string(j.Data))
		receipt, err = s.Complete(ctx, "payment", "order A17", 4712)
		fmt.Println(receipt.Kind, err)
	})
	// Output:
	// accepted <nil>
	// FINISHED {"order":"A17","try":0,"number":4711}
	// duplicate <nil>
}

// Retry decides whether a failed attempt is repeated, and may change the data of the job.
func ExampleType_retry() {
	b := &bank{asked: make(chan string)}
	payment := runner.Type[Payment, int]{
		Name: "payment",
		Key:  func(p Payment) string { return fmt.Sprint("order ", p.Order, " try ", p.Try) },
		Request: func(ctx context.Context, p Payment) error {
			return b.charge(ctx, fmt.Sprint("order ", p.Order, " try ", p.Try))
		},
		Retry: func(_ context.Context, f *runner.Failure[Payment]) bool {
			fmt.Printf("attempt %d: %v\n", f.Attempt, f.Err)
			f.Data.Try++
			f.At = time.Now().Add(10 * time.Millisecond)
			return errors.Is(f.Err, task.ErrRejected) && f.Attempt < 3
		},
	}
	withPayments(payment.Register, func(ctx context.Context, s *jobs.Service) {
		id, err := payment.Create(ctx, s, "payments", Payment{Order: "A17"})
		if err != nil {
			panic(err)
		}
		if _, err := s.Reject(ctx, "payment", <-b.asked, errors.New("come back later")); err != nil {
			panic(err)
		}
		if _, err := s.Complete(ctx, "payment", <-b.asked, 4711); err != nil {
			panic(err)
		}
		j := ended(ctx, s, id)
		fmt.Println(j.State, string(j.Answer), j.Attempt, "attempts")
	})
	// Output:
	// attempt 1: come back later
	// FINISHED 4711 2 attempts
}

// A plain handler waits for an answer from outside: it calls Expect with the key of the answer, and
// returns Defer.
func ExampleRunner_defer() {
	b := &bank{asked: make(chan string)}
	payment := task.New[Payment, task.None]("payment")
	register := func(r *runner.Runner) error {
		return payment.Handle(r, func(ctx context.Context, p Payment) (task.None, error) {
			key := "order " + p.Order
			if err := task.Expect(ctx, key); err != nil { // stored durably before the bank knows the key
				return task.None{}, err
			}
			if err := b.charge(ctx, key); err != nil {
				return task.None{}, err
			}
			return task.None{}, task.Defer(key, task.AnswerWithin(time.Hour))
		})
	}
	withPayments(register, func(ctx context.Context, s *jobs.Service) {
		made, err := s.Create(ctx, jobs.Spec{Name: "payment", Queue: "payments", Data: []byte(`{"order":"A17"}`)})
		if err != nil {
			panic(err)
		}
		if _, err := s.Complete(ctx, "payment", <-b.asked, 4711); err != nil {
			panic(err)
		}
		j := ended(ctx, s, made.ID)
		fmt.Println(j.State, string(j.Answer))
	})
	// Output:
	// FINISHED 4711
}
