package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
)

// Request is a task as its handler and the middleware see it. It is valid until the handler
// returns. Do not change its fields: middleware that must change one makes a copy and passes that
// on.
type Request struct {
	*Envelope        // as it was received
	Queue     string // queue from which it was received; retries go to it
	// all layers of metadata, merged: static, consumer, definition, call; never nil, read-only
	Effective *Metadata
	// generation of the message; (Generation, Deliveries) is the fencing token of this attempt
	Generation int
	Deliveries int       // number of deliveries of this generation, 1 for the first
	Exact      bool      // Deliveries is exact; else it only says "more than once"
	Received   time.Time // time of its receipt
	StartedAt  time.Time // start of this attempt
	NodeID     string    // node id of the consumer
	// an earlier start has ended its process: no other task starts beside this one
	Quarantined bool

	// Onward holds headers for the tasks that follow this one. They override its own headers; retries
	// of this task do not get them. May be nil. A middleware may replace the map on its own request.
	Onward map[string]string

	decode  func(contentType string, data []byte, v any) error
	members MembersFunc // nil without a Gatherer and outside of consumers
	settler Settler     // nil outside of consumers
	// nil outside of consumers
	checkpoints Checkpointer
	host        BatchHost // nil outside of consumers
	// the type of the handler's results; nil before a handler of Task.Handle
	result reflect.Type
	// nil outside of consumers and job runners
	progress Progressor
}

// NewRequest returns the request of an envelope. Its effective metadata are those of the envelope.
// decode reads serialized arguments; with a nil decode Bind fails. It is for consumers, for brokers
// that execute at once, and for tests.
func NewRequest(e *Envelope, decode func(contentType string, data []byte, v any) error) *Request {
	return &Request{Envelope: e, Effective: &e.Meta, decode: decode}
}

// Bind decodes the arguments into v, a non-nil pointer. Returns an error that wraps [ErrBadArgs].
func (r *Request) Bind(v any) error {
	if r.decode == nil {
		return errors.Join(ErrBadArgs, errors.New("this request has no serializer"))
	}
	if err := r.decode(r.ContentType, r.Args, v); err != nil {
		return fmt.Errorf("%w; send task %q a %s, or change its handler", err, r.Name, strings.TrimPrefix(fmt.Sprintf("%T", v), "*"))
	}
	return nil
}

// RetriesLeft returns the number of remaining retries. Negative: no limit.
func (r *Request) RetriesLeft() int {
	limit := r.Effective.MaxRetries.Or(DefaultMaxRetries)
	if limit < 0 {
		return -1
	}
	return max(0, limit-r.Retries)
}

// SuccessorHeaders returns the headers of the tasks that follow this one: its own, overridden by
// Onward. Do not change the map: it may be the request's own.
func (r *Request) SuccessorHeaders() map[string]string {
	if len(r.Onward) == 0 {
		return r.Headers
	}
	all := maps.Clone(r.Headers)
	if all == nil {
		all = make(map[string]string, len(r.Onward))
	}
	maps.Copy(all, r.Onward)
	return all
}

type requestKey struct{}

// WithRequest returns a context in which [FromContext] finds r. Consumers call it before the
// middleware.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// FromContext returns the request of the handler that runs with ctx. It returns false outside of a
// handler.
func FromContext(ctx context.Context) (*Request, bool) {
	r, ok := ctx.Value(requestKey{}).(*Request)
	return r, ok
}
