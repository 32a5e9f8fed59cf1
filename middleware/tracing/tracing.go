// Package tracing propagates OpenTelemetry traces from producers to consumers in the headers of
// tasks, and makes spans on both sides.
//
// [Send] makes a span of kind producer for each submission, a child of the caller's span. It writes
// the span's context into the task's headers (traceparent and tracestate of W3C trace context). The
// span ends when the broker has confirmed the task, or when it is known that it will not.
//
// [Run] makes a span of kind consumer for each run. It is a child of the producer's span and linked
// to it. Each retry has its own span with the same parent. Tasks that follow a run, such as the
// next task of a chain or tasks that its handler submits, have the run's span as parent.
//
// Spans contain names, ids and numbers, and for a failed run the error's text and type. They never
// contain arguments or results.
//
// The package uses only the API of OpenTelemetry; the program chooses the SDK. It has no global
// state.
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

// Config configures [Send] and [Run]. The zero value is valid.
type Config struct {
	// Provider makes the tracer, for example the SDK's provider. nil: no spans are made, but the
	// caller's trace is still propagated.
	Provider trace.TracerProvider
	// Propagator writes contexts to headers and reads them. Default: W3C trace context.
	Propagator propagation.TextMapPropagator
	// System is the messaging system of the broker as in the conventions: "rabbitmq", "redis", "nats".
	// Default: "swarmiji".
	System string
	// NewTraces starts a new trace for each run, linked to the trace of the submission. It is for
	// tasks that wait long, or of which there are many. Tasks that follow a run belong to its new
	// trace.
	NewTraces bool
}

// Send returns middleware for a producer. Safe for concurrent use. If ctx has no trace, but the
// task's headers have one, that trace continues.
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

// Run returns middleware for a consumer. Safe for concurrent use. Put it first, so that the spans
// include the other middleware.
func Run(c Config) middleware.Middleware {
	t := newTracing(c)
	return func(next task.Handler) task.Handler {
		return task.HandlerFunc(func(ctx context.Context, r *task.Request) (any, error) {
			ctx, span := t.begin(ctx, r)
			defer span.End()
			r.Onward = t.inject(ctx, r.Onward)
			returned := false
			defer func() { // an unrecovered panic continues after this
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

// tracing is a [Config] with its defaults set and its tracer.
type tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	system     string
	newTraces  bool
}

// newTracing returns the tracing of c. It sets the defaults and makes the tracer.
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

// begin starts the span of a run and returns it with a context that has it. Its parent comes from
// the task's headers, not from the consumer's context, which may have a span of the process.
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

// common returns the attributes that the spans of both sides have. name and kind are the name and
// the type of the operation.
func (t *tracing) common(name, kind, queue string, e *task.Envelope) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 12),
		keySystem.String(t.system), keyOperationName.String(name), keyOperationType.String(kind), keyDestination.String(queue),
		keyMessageID.String(string(e.ID)), keyTask.String(e.Name), keyRoot.String(string(e.RootID())))
	if e.Parent != "" {
		attrs = append(attrs, keyParent.String(string(e.Parent)))
	}
	return attrs
}

// inject returns a copy of headers with the trace of ctx instead of an older trace. It returns nil
// instead of an empty map.
func (t *tracing) inject(ctx context.Context, headers map[string]string) map[string]string {
	own := make(propagation.MapCarrier, len(headers)+2)
	maps.Copy(own, headers)
	// the old trace may have more fields than the new one
	for _, field := range t.propagator.Fields() {
		delete(own, field)
	}
	t.propagator.Inject(ctx, own)
	if len(own) == 0 {
		return nil
	}
	return own
}

// conclude sets the outcome of a run in its span, from the error and the task's rules. An attempt
// that will be retried has failed; a snooze and a deferred answer have not.
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

// fail sets the type and the text of err, and the status error, in the span.
func fail(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	remote := task.Remote(err)
	span.SetAttributes(keyErrorType.String(remote.Type))
	span.SetStatus(codes.Error, remote.Error())
}
