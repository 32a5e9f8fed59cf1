package deadletter_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A task without a handler is dead-lettered. After a consumer with the handler has started, the
// letter is found and requeued. The task begins a new life, and its future gets the result.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, results := membroker.New(), memresults.New(memresults.Config{})
	quiet := slog.New(slog.DiscardHandler)
	p, err := producer.New(producer.Config{Broker: b, Results: results, Logger: quiet})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Logger: quiet, Tuning: consumer.Tuning{UnknownRetries: -1}})
	must(err)
	stop, stopped := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- c.Run(stop) }()

	report := task.New[int, string]("report.make")
	first, err := report.Submit(ctx, p, 10, task.WithID("report-10"))
	must(err)
	_, err = first.Get(ctx)
	fmt.Println("failed:", err)

	letters, err := deadletter.New(deadletter.Config{Broker: b, Results: results})
	must(err)
	for found := false; !found; { // the record is stored before the letter
		must(letters.List(ctx, "default", deadletter.Filter{Task: "report.*"}, func(l *deadletter.Letter) bool {
			var month int
			must(l.Bind(&month))
			fmt.Println("letter:", l.ID, l.Name(), month)
			found = true
			return true
		}))
	}

	must(report.Handle(c, func(_ context.Context, month int) (string, error) { return fmt.Sprint("report of month ", month), nil }))
	r, err := letters.Requeue(ctx, "default", deadletter.Filter{YoungerThan: time.Hour, Limit: 1000})
	must(err)
	fmt.Println("requeued:", r.Done, "refused:", r.Refused)
	again, err := task.FutureOf[string](p.Pending("report-10")).Get(ctx)
	must(err)
	fmt.Println(again)

	stopped()
	must(<-done)
	must(p.Close(ctx))
	// Output:
	// failed: swarmiji: no handler of this name is registered: "report.make" came to queue "default", whose consumer has none; register it there, or send it to the queue of its consumer
	// letter: report-10 report.make 10
	// requeued: 1 refused: 0
	// report of month 10
}

// A dry run comes first: it counts the letters of a filter. Then the same filter requeues them.
func ExampleLetters_Summarize() {
	ctx, b := context.Background(), membroker.New()
	for i, reason := range []string{"timeout", "timeout", "no such address"} {
		m := &broker.Message{ID: fmt.Sprint("mail-", i), ContentType: "application/json", Body: fmt.Appendf(nil, `{"task":"mail.send","id":"mail-%d"}`, i)}
		must(b.PutDead(ctx, "mail", broker.Dead{Message: m, Reason: reason}))
	}
	letters, err := deadletter.New(deadletter.Config{Broker: b})
	must(err)
	filter := deadletter.Filter{Task: "mail.*", Error: "timeout"}
	s, err := letters.Summarize(ctx, "mail", filter)
	must(err)
	fmt.Println("selected:", s.Letters, s.Tasks)
	r, err := letters.Requeue(ctx, "mail", filter)
	must(err)
	fmt.Println("requeued:", r.Done)
	// Output:
	// selected: 2 map[mail.send:2]
	// requeued: 2
}
