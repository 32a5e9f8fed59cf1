package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/tracing"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

// One trace goes from the submitter through the task's run to the next task. The spans go to the
// program's SDK, here into memory.
func Example() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	config := tracing.Config{Provider: provider, System: "memory"}
	b, results := membroker.New(), memresults.New(memresults.Config{})
	p, err := producer.New(producer.Config{Broker: b, Results: results, Middleware: []middleware.SendMiddleware{tracing.Send(config)}})
	must(err)
	c, err := consumer.New(consumer.Config{Broker: b, Results: results, Middleware: []middleware.Middleware{tracing.Run(config)}})
	must(err)
	fetch := task.New[string, string]("fetch")
	index := task.New[string, int]("index")
	must(errors.Join(
		fetch.Handle(c, func(_ context.Context, url string) (string, error) { return "text of " + url, nil }),
		index.Handle(c, func(_ context.Context, text string) (int, error) { return len(text), nil }),
	))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	call := fetch.Call("https://example.org/?key=secret")
	call.Then = []task.Link{{ID: "then", Name: "index"}}
	_, err = p.Submit(ctx, call)
	must(err)
	<-p.Pending("then").Done()
	stop()
	must(errors.Join(<-ended, p.Close(context.Background()), results.Close(context.Background()), b.Close(context.Background())))

	all := spans.GetSpans()
	slices.SortFunc(all, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := make(map[string]string) // by the span's id
	for _, s := range all {
		names[s.SpanContext.SpanID().String()] = s.Name
		fmt.Printf("%s (%s), child of %q\n", s.Name, s.SpanKind, names[s.Parent.SpanID().String()])
	}
	// Output:
	// send fetch (producer), child of ""
	// run fetch (consumer), child of "send fetch"
	// run index (consumer), child of "run fetch"
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
