package middleware_test

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/tasktest"
)

// A consumer measures how long tasks waited in their queue and how long their handlers ran.
func ExampleMetrics_OfQueue() {
	var m middleware.Metrics
	greet := task.New[string, string]("greet", task.WithQueue("mail"))
	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{})
	s.Start(consumer.Config{Metrics: &m, Queues: map[string]consumer.QueueConfig{"mail": {Workers: 1}}}, func(r task.Registrar) error {
		return greet.Handle(r, func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	})
	for _, name := range []string{"ada", "grace"} {
		f, err := greet.Submit(context.Background(), p, name)
		if err != nil {
			panic(err)
		}
		<-f.Done()
	}
	s.Close() // Close waits for the counts that come after the results
	mail := m.OfQueue("mail")
	longest := time.Duration(mail.Wait.Max()) * time.Microsecond
	fmt.Println("waits:", mail.Wait.Count(), "longest below a minute:", longest < time.Minute)
	fmt.Println("runs of greet:", m.OfTask("greet").Run.Count())
	// Output:
	// waits: 2 longest below a minute: true
	// runs of greet: 2
}
