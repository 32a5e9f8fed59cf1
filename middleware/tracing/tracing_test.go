package tracing_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/middleware/tracing"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "s3cret-argument"

// world is a producer and a consumer whose spans are stored in memory.
type world struct {
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	producer *producer.Producer
	consumer *consumer.Consumer
	ctx      context.Context
	start    func()
}

func newWorld(t *testing.T, c tracing.Config) *world {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	c.Provider = provider
	b, results := membroker.New(), memresults.New(memresults.Config{})
	p, err := producer.New(producer.Config{Broker: b, Results: results, Middleware: []middleware.SendMiddleware{tracing.Send(c)}})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := consumer.New(consumer.Config{Broker: b, Results: results, Middleware: []middleware.Middleware{tracing.Run(c)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	running, stop := context.WithCancel(ctx)
	var run sync.WaitGroup
	t.Cleanup(func() {
		stop()
		run.Wait()
		if err := errors.Join(p.Close(ctx), results.Close(ctx), b.Close(ctx), provider.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
		cancel()
	})
	return &world{spans, provider, p, runs, ctx, func() {
		// The process has its own span, which must not become the parent of its runs.
		ctx, span := provider.Tracer("test").Start(running, "consumer process")
		defer span.End()
		run.Go(func() {
			if err := runs.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}}
}

// named waits for n spans of a name and returns them in the order of their start.
func (w *world) named(t *testing.T, name string, n int) []tracetest.SpanStub {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		var found []tracetest.SpanStub
		for _, s := range w.spans.GetSpans() {
			if s.Name == name {
				found = append(found, s)
			}
		}
		if len(found) >= n || time.Now().After(end) {
			if len(found) != n {
				t.Fatalf("%d spans are called %q, want %d", len(found), name, n)
			}
			slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
			return found
		}
	}
}

func attributes(s tracetest.SpanStub) map[string]any {
	m := make(map[string]any)
	for _, a := range s.Attributes {
		m[string(a.Key)] = a.Value.AsInterface()
	}
	return m
}

func handle[A, R any](t *testing.T, c *consumer.Consumer, d task.Task[A, R], fn func(context.Context, A) (R, error)) {
	t.Helper()
	if err := d.Handle(c, fn); err != nil {
		t.Fatal(err)
	}
}

// TestTrace follows one trace from a caller through a producer to a consumer. It continues through
// a retry, a task that the handler submits, and the next task of a chain.
func TestTrace(t *testing.T) {
	w := newWorld(t, tracing.Config{System: "memory"})
	first := task.New[string, string]("first", task.WithRetryDelay(0))
	second := task.New[string, string]("second")
	child := task.New[string, string]("child")
	handle(t, w.consumer, first, func(ctx context.Context, s string) (string, error) {
		if r, _ := task.FromContext(ctx); r.Retries == 0 {
			if _, err := child.Submit(ctx, w.producer, s); err != nil {
				return "", err
			}
			return "", task.Retry(errors.New("not yet"))
		}
		return s, nil
	})
	handle(t, w.consumer, second, func(_ context.Context, s string) (string, error) { return s, nil })
	handle(t, w.consumer, child, func(_ context.Context, s string) (string, error) { return s, nil })
	w.start()

	ctx, caller := w.provider.Tracer("test").Start(w.ctx, "caller")
	call := first.Call(secret, task.WithHeader("user", "ada"))
	call.ID = "id-1"
	call.Then = []task.Link{{ID: "id-2", Name: "second"}}
	if _, err := w.producer.Submit(ctx, call); err != nil {
		t.Fatal(err)
	}
	caller.End()
	select {
	case <-w.producer.Pending("id-2").Done():
	case <-w.ctx.Done():
		t.Fatal("the chain did not end")
	}

	created := w.named(t, "send first", 1)[0]
	runs := w.named(t, "run first", 2)
	next := w.named(t, "run second", 1)[0]
	childCreated, childRun := w.named(t, "send child", 1)[0], w.named(t, "run child", 1)[0]
	for name, s := range map[string]struct {
		span   tracetest.SpanStub
		parent trace.SpanContext
		kind   trace.SpanKind
		linked bool
	}{
		"send first":       {created, caller.SpanContext(), trace.SpanKindProducer, false},
		"run first":        {runs[0], created.SpanContext, trace.SpanKindConsumer, true},
		"run first, again": {runs[1], created.SpanContext, trace.SpanKindConsumer, true},
		"run second":       {next, runs[1].SpanContext, trace.SpanKindConsumer, true},
		"send child":       {childCreated, runs[0].SpanContext, trace.SpanKindProducer, false},
		"run child":        {childRun, childCreated.SpanContext, trace.SpanKindConsumer, true},
	} {
		if s.span.SpanContext.TraceID() != caller.SpanContext().TraceID() {
			t.Errorf("%s is of another trace", name)
		}
		if s.span.Parent.SpanID() != s.parent.SpanID() || s.span.SpanKind != s.kind {
			t.Errorf("%s: parent %s, want %s; kind %s, want %s", name, s.span.Parent.SpanID(), s.parent.SpanID(), s.span.SpanKind, s.kind)
		}
		if linked := len(s.span.Links) == 1 && s.span.Links[0].SpanContext.SpanID() == s.parent.SpanID(); linked != s.linked {
			t.Errorf("%s has the links %v", name, s.span.Links)
		}
	}
	if runs[0].Status.Code != codes.Error || runs[1].Status.Code != codes.Unset {
		t.Errorf("the attempts ended with %v and %v", runs[0].Status, runs[1].Status)
	}
	want := map[string]any{
		"messaging.system": "memory", "messaging.operation.name": "run", "messaging.operation.type": "process",
		"messaging.destination.name": "default", "messaging.message.id": "id-1", "swarmiji.task.name": "first", "swarmiji.task.root_id": "id-1",
		"swarmiji.task.attempt": int64(2), "swarmiji.task.deliveries": int64(1), "swarmiji.node_id": w.consumer.NodeID(),
		"swarmiji.task.outcome": "succeeded",
	}
	if diff := cmp.Diff(want, attributes(runs[1])); diff != "" {
		t.Errorf("attributes of a run (-want +got):\n%s", diff)
	}
	if got := attributes(next); got["swarmiji.task.parent_id"] != "id-1" || got["swarmiji.task.root_id"] != "id-1" {
		t.Errorf("attributes of a successor: %v", got)
	}
	for _, s := range w.spans.GetSpans() {
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), secret) {
				t.Errorf("%s shows an argument in %s", s.Name, a.Key)
			}
		}
	}
}

func TestOutcomes(t *testing.T) {
	w := newWorld(t, tracing.Config{})
	work := task.New[string, string]("work", task.WithMaxRetries(0))
	handle(t, w.consumer, work, func(ctx context.Context, what string) (string, error) {
		r, _ := task.FromContext(ctx)
		switch {
		case what == "fail":
			return "", context.DeadlineExceeded
		case what == "panic":
			panic("boom")
		case what == "retry" && r.Retries > 0:
			return "", task.Retry(errors.New("again"), task.AtMost(1))
		case what == "retry":
			return "", task.Retry(errors.New("again"), task.AtMost(1), task.After(0))
		case what == "snooze" && r.Generation == 0:
			return "", task.Snooze(0)
		}
		return "", nil
	})
	w.start()
	for what, want := range map[string]struct {
		outcome, errorType string
		status             codes.Code
	}{
		"fail":   {"failed", "context.deadlineExceededError", codes.Error},
		"panic":  {"failed", "swarmiji.Panic", codes.Error},
		"snooze": {"snooze", "", codes.Unset},
		"retry":  {"retry", "errors.errorString", codes.Error},
		"go":     {"succeeded", "", codes.Unset},
	} {
		w.spans.Reset()
		f, err := work.Submit(w.ctx, w.producer, what)
		if err != nil {
			t.Fatal(err)
		}
		<-f.Done()
		n := 1
		if what == "snooze" || what == "retry" {
			n = 2
		}
		runs := w.named(t, "run work", n)
		if what == "retry" && attributes(runs[1])["swarmiji.task.outcome"] != "failed" {
			t.Errorf("the last attempt: %v", attributes(runs[1]))
		}
		s := runs[0]
		got := attributes(s)
		errorType, _ := got["error.type"].(string)
		if got["swarmiji.task.outcome"] != want.outcome || errorType != want.errorType || s.Status.Code != want.status {
			t.Errorf("%s: outcome %v, error %q, status %v", what, got["swarmiji.task.outcome"], errorType, s.Status)
		}
		if created := w.named(t, "send work", 1)[0]; created.Parent.IsValid() {
			t.Errorf("%s: a submission without a caller's span has the parent %s", what, created.Parent.SpanID())
		}
	}
}

// TestNewTraces shows that a run can have its own trace, linked to the trace of its submission.
func TestNewTraces(t *testing.T) {
	w := newWorld(t, tracing.Config{NewTraces: true})
	work := task.New[string, string]("work")
	handle(t, w.consumer, work, func(context.Context, string) (string, error) { return "", nil })
	w.start()
	f, err := work.Submit(w.ctx, w.producer, "")
	if err != nil {
		t.Fatal(err)
	}
	<-f.Done()
	created, run := w.named(t, "send work", 1)[0], w.named(t, "run work", 1)[0]
	if run.Parent.IsValid() || run.SpanContext.TraceID() == created.SpanContext.TraceID() {
		t.Error("the run is of the submission's trace")
	}
	if len(run.Links) != 1 || !run.Links[0].SpanContext.Equal(created.SpanContext.WithRemote(true)) {
		t.Errorf("links: %v", run.Links)
	}
}

// TestRefusedTask shows that a refused task leaves a span with the error, and that the caller gets
// a veto.
func TestRefusedTask(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	veto := errors.New("veto")
	send := tracing.Send(tracing.Config{Provider: provider})(func(context.Context, string, *task.Envelope) error { return veto })
	if err := send(t.Context(), "q", &task.Envelope{ID: "id", Name: "t"}); !errors.Is(err, veto) {
		t.Fatal(err)
	}
	if s := spans.GetSpans(); len(s) != 1 || s[0].Status.Code != codes.Error || s[0].Status.Description != "veto" {
		t.Errorf("%+v", s)
	}
}

// TestSpanEndsWithTheConfirmation shows that the span of a submission lasts until the broker
// answers, and that it contains a refusal.
func TestSpanEndsWithTheConfirmation(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	down := errors.New("down")
	for _, want := range []error{nil, down} {
		spans.Reset()
		b := slowBroker{Broker: membroker.New(), publish: func() error {
			if n := len(spans.GetSpans()); n != 0 {
				t.Errorf("%d spans ended before the broker had answered", n)
			}
			return want
		}}
		p, err := producer.New(producer.Config{Broker: b, Middleware: []middleware.SendMiddleware{tracing.Send(tracing.Config{Provider: provider})}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := task.New[int, int]("work").Submit(t.Context(), p, 1); !errors.Is(err, want) {
			t.Fatal(err)
		}
		if s := spans.GetSpans(); len(s) != 1 || (s[0].Status.Code == codes.Error) != (want != nil) {
			t.Errorf("after %v: %+v", want, s)
		}
		if err := errors.Join(p.Close(t.Context()), b.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// slowBroker waits for a permission before it answers.
type slowBroker struct {
	broker.Broker
	publish func() error
}

func (b slowBroker) Publish(context.Context, string, *broker.Message) error { return b.publish() }

// TestPanicPassesBy shows that an unrecovered panic ends the span and continues.
func TestPanicPassesBy(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	h := tracing.Run(tracing.Config{Provider: provider})(task.HandlerFunc(func(context.Context, *task.Request) (any, error) { panic("boom") }))
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
		if s := spans.GetSpans(); len(s) != 1 || s[0].Status.Code != codes.Error {
			t.Errorf("%+v", s)
		}
	}()
	_, _ = h.Handle(t.Context(), task.NewRequest(&task.Envelope{ID: "id", Name: "t"}, nil))
}

// TestHeaders shows what happens without a provider: no spans are made, and the caller's trace is
// propagated. Other headers stay, those of an older trace are removed, and the given map is
// unchanged.
func TestHeaders(t *testing.T) {
	const (
		parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
		other  = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-aaaaaaaaaaaaaaaa-01"
	)
	id, _ := trace.TraceIDFromHex("0123456789abcdef0123456789abcdef")
	span, _ := trace.SpanIDFromHex("0123456789abcdef")
	traced := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled}))
	for name, c := range map[string]struct {
		ctx          context.Context
		before, want map[string]string
	}{
		"no trace":         {t.Context(), map[string]string{"user": "ada"}, map[string]string{"user": "ada"}},
		"no headers":       {t.Context(), nil, nil},
		"a trace":          {traced, map[string]string{"user": "ada"}, map[string]string{"user": "ada", "traceparent": parent}},
		"an older trace":   {traced, map[string]string{"traceparent": other, "tracestate": "a=b"}, map[string]string{"traceparent": parent}},
		"a forwarded one":  {t.Context(), map[string]string{"traceparent": other, "tracestate": "a=b"}, map[string]string{"traceparent": other, "tracestate": "a=b"}},
		"nonsense as such": {t.Context(), map[string]string{"traceparent": "00-zz"}, nil},
	} {
		e := &task.Envelope{ID: "id", Name: "t", Headers: maps.Clone(c.before)}
		theirs := e.Headers
		if err := tracing.Send(tracing.Config{})(func(context.Context, string, *task.Envelope) error { return nil })(c.ctx, "q", e); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, e.Headers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.before, theirs); diff != "" {
			t.Errorf("%s: the map was changed (-want +got):\n%s", name, diff)
		}
	}
}

// TestNames compares the attributes with the conventions.
func TestNames(t *testing.T) {
	w := newWorld(t, tracing.Config{})
	work := task.New[string, string]("work")
	handle(t, w.consumer, work, func(context.Context, string) (string, error) { return "", errors.New("no") })
	w.start()
	f, err := work.Submit(w.ctx, w.producer, "")
	if err != nil {
		t.Fatal(err)
	}
	<-f.Done()
	have := func(s tracetest.SpanStub, want ...attribute.KeyValue) {
		got := attributes(s)
		for _, a := range want {
			if got[string(a.Key)] != a.Value.AsInterface() {
				t.Errorf("%s: %s is %v, want %v", s.Name, a.Key, got[string(a.Key)], a.Value.AsInterface())
			}
		}
	}
	common := []attribute.KeyValue{
		semconv.MessagingSystemKey.String("swarmiji"), semconv.MessagingDestinationName("default"), semconv.MessagingMessageID(string(f.ID())),
	}
	have(w.named(t, "send work", 1)[0], append(common, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"))...)
	have(w.named(t, "run work", 1)[0], append(common, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("run"),
		semconv.ErrorTypeKey.String("errors.errorString"))...)
}
