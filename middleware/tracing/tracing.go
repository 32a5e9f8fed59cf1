// Package tracing carries OpenTelemetry traces from those who submit tasks to those who run them, in the headers of the
// tasks, and makes the spans of both sides:
//
//   - [Send] makes a span of kind producer for each submission, a child of the caller's span, and writes its context into the
//     task's headers (traceparent and tracestate, as W3C's trace context has them). It ends when the broker has confirmed the
//     task, or when it is known that it will not.
//   - [Run] makes a span of kind consumer for each run, a child of that span and linked to it. Each retry has a span of its
//     own with the same parent. Tasks that follow one, such as the next of a chain, have its run for their parent, and so have
//     those that a handler submits with its context.
//
// Spans hold names, ids and numbers, and of a failed run the error's text and type. Arguments and results are never in them.
//
// Only the API of OpenTelemetry is used: which SDK makes what of the spans is the program's to say, and nothing is global.
package tracing

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Config of [Send] and [Run]. The zero value is usable.
type Config struct {
	// Provider makes the tracer, such as the SDK's. nil: no spans are made, and the caller's trace travels on nevertheless.
	Provider trace.TracerProvider
	// Propagator writes contexts into headers and reads them. nil: W3C's trace context.
	Propagator propagation.TextMapPropagator
	// System names the broker, as the conventions for messaging do: "rabbitmq", "redis", "nats". "": "swarmiji".
	System string
	// NewTraces lets each run begin a trace of its own that is linked to the submission's, for tasks that wait for long or
	// come in crowds. Tasks that follow it belong to the new trace.
	NewTraces bool
}

// Send returns the middleware of a producer. It is safe for concurrent use. A task whose headers hold a context already, and
// whose submitter's ctx holds none, goes on with that of the headers.
func Send(c Config) middleware.SendMiddleware {
	t := newTracing(c)
	return func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			if !trace.SpanContextFromContext(ctx).IsValid() {
				ctx = t.propagator.Extract(ctx, propagation.MapCarrier(e.Headers))
			}
			attrs := append(t.common(nameSend, typeSend, queue, e), keyNode.String(e.Origin))
			ctx, span := t.tracer.Start(ctx, nameSend+" "+e.Name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
			staged := false
			defer func() {
				if !staged {
					span.End()
				}
			}()
			e.Headers = t.inject(ctx, e.Headers)
			err := next(ctx, queue, e)
			if err != nil {
				fail(span, err)
				return err
			}
			staged = middleware.OnConfirm(ctx, func(err error) {
				if err != nil {
					fail(span, err)
				}
				span.End()
			})
			return nil
		}
	}
}

// Run returns the middleware of a consumer. It is safe for concurrent use. Put it first, so that the spans cover the others.
func Run(c Config) middleware.Middleware {
	t := newTracing(c)
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			ctx, span := t.begin(ctx, r)
			defer span.End()
			r.Onward = t.inject(ctx, r.Onward)
			returned := false
			defer func() { // a panic passes by, also where nobody inside made an error of it
				if !returned {
					span.SetAttributes(keyOutcome.String(outcomeFailed), keyErrorType.String("panic"))
					span.SetStatus(codes.Error, "panic")
				}
			}()
			res, err := next.Handle(ctx, r)
			returned = true
			conclude(span, r, err)
			return res, err
		})
	}
}

type tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	system     string
	newTraces  bool
}

func newTracing(c Config) *tracing {
	if c.Provider == nil {
		c.Provider = noop.NewTracerProvider()
	}
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	if c.System == "" {
		c.System = defaultSystem
	}
	return &tracing{tracer: c.Provider.Tracer(scope), propagator: c.Propagator, system: c.System, newTraces: c.NewTraces}
}

// begin starts the span of a run. What the consumer's own context may hold is not its parent: that is the span of a process.
func (t *tracing) begin(ctx context.Context, r *task.Request) (context.Context, trace.Span) {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(r.Headers))
	attrs := append(t.common(nameRun, typeProcess, r.Queue, r.Envelope),
		keyAttempt.Int(r.Retries+1), keyDeliveries.Int(r.Deliveries), keyNode.String(r.NodeID))
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...)}
	if sent := trace.SpanContextFromContext(ctx); sent.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sent}))
	}
	if t.newTraces {
		opts = append(opts, trace.WithNewRoot())
	}
	return t.tracer.Start(ctx, nameRun+" "+r.Name, opts...)
}

// common are the attributes of both sides.
func (t *tracing) common(name, kind, queue string, e *task.Envelope) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 12),
		keySystem.String(t.system), keyOperationName.String(name), keyOperationType.String(kind), keyDestination.String(queue),
		keyMessageID.String(string(e.ID)), keyTask.String(e.Name), keyRoot.String(string(e.RootID())))
	if e.Parent != "" {
		attrs = append(attrs, keyParent.String(string(e.Parent)))
	}
	return attrs
}

// inject returns headers with ctx's trace instead of theirs. Headers may be others' too: it changes a copy.
func (t *tracing) inject(ctx context.Context, headers map[string]string) map[string]string {
	own := make(propagation.MapCarrier, len(headers)+2)
	maps.Copy(own, headers)
	for _, field := range t.propagator.Fields() { // the old trace may have said more than the new one does
		delete(own, field)
	}
	t.propagator.Inject(ctx, own)
	if len(own) == 0 {
		return nil
	}
	return own
}

// conclude notes how a run ended, by its error and the task's own rules. An attempt that will be repeated has failed; a snooze
// is no failure, nor is an answer that is still to come.
func conclude(span trace.Span, r *task.Request, err error) {
	if !span.IsRecording() {
		return
	}
	o := r.Outcome(err)
	outcome := outcomeFailed
	switch o.State {
	case task.StateSucceeded:
		outcome = outcomeSucceeded
	case task.StatePending:
		outcome = outcomeSnooze
	case task.StateRetrying:
		outcome = outcomeRetry
	case task.StateAwaiting:
		outcome = outcomeAwaiting
	}
	span.SetAttributes(keyOutcome.String(outcome))
	if outcome == outcomeFailed || outcome == outcomeRetry {
		fail(span, o.Recorded())
	}
}

// fail notes an error.
func fail(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	remote := task.Remote(err)
	span.SetAttributes(keyErrorType.String(remote.Type))
	span.SetStatus(codes.Error, remote.Error())
}
