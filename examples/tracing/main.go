// Tracing follows a task from its submission through its run to the task after it, with
// OpenTelemetry.
//
//	go run ./examples/tracing
//
// It needs no server and prints:
//
//	send demo.fetch
//	run demo.fetch, child of send demo.fetch
//	run demo.index, child of run demo.fetch
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/tracing"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

var (
	Fetch = task.New[string, string]("demo.fetch")
	Index = task.New[string, int]("demo.index")
)

func fetch(_ context.Context, url string) (string, error) { return "text of " + url, nil }

func index(_ context.Context, text string) (int, error) { return len(text), nil }

func main() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter() // a real program exports to its collector
	config := tracing.Config{Provider: trace.NewTracerProvider(trace.WithSyncer(spans)), System: "memory"}

	swarm, err := open.Open(ctx, "mem://", open.Options{})
	check(err)
	p, err := swarm.Producer(producer.Config{Middleware: []middleware.SendMiddleware{tracing.Send(config)}})
	check(err)
	c, err := swarm.Consumer(consumer.Config{Middleware: []middleware.Middleware{tracing.Run(config)}})
	check(err)
	check(errors.Join(Fetch.Handle(c, fetch), Index.Handle(c, index)))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()

	both, err := task.Chain(Fetch, Index).Submit(ctx, p, "https://example.org/")
	check(err)
	_, err = both.Get(ctx)
	check(err)

	stop()
	check(errors.Join(<-ended, p.Close(ctx), swarm.Close(ctx)))

	all := spans.GetSpans()
	slices.SortFunc(all, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := map[string]string{} // by the id of the span
	for _, s := range all {
		names[s.SpanContext.SpanID().String()] = s.Name
		if parent := names[s.Parent.SpanID().String()]; parent != "" {
			fmt.Printf("%s, child of %s\n", s.Name, parent)
			continue
		}
		fmt.Println(s.Name)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
