package task

import (
	"context"
	"errors"
	"maps"
	"time"
)

// Request is a task as its handler and the middleware around it see it. It lives as long as the handler's run.
// Fields are for reading; middleware that must change one makes a copy and hands that on.
type Request struct {
	*Envelope            // as it was received
	Queue      string    // it was received from, and a retry goes to
	Effective  *Metadata // all layers merged: static, consumer, definition, call; never nil, and never to be changed
	Generation int       // of the message; (Generation, Deliveries) is the fencing token of this run
	Deliveries int       // how often the broker handed this generation out, 1 = first
	Exact      bool      // whether Deliveries is exact or only "more than once"
	Received   time.Time // when the consumer took it from the broker
	StartedAt  time.Time // when this run began
	NodeID     string    // of the consumer

	// Onward are headers that tasks following this one get, over its own headers; its own retries do not. nil: none. A
	// middleware may replace it, on the request that it was given.
	Onward map[string]string

	decode  func(contentType string, data []byte, v any) error
	members MembersFunc // nil where there is no Gatherer, and for tasks that no consumer has sent
}

// NewRequest makes the request of an envelope, whose own metadata are the effective ones. decode reads serialized arguments; a nil decode makes Bind fail.
// Handlers are given requests by a consumer; this is for consumers, brokers that execute at once, and tests.
func NewRequest(e *Envelope, decode func(contentType string, data []byte, v any) error) *Request {
	return &Request{Envelope: e, Effective: &e.Meta, decode: decode}
}

// Bind decodes the arguments into v, a non-nil pointer. The error wraps [ErrBadArgs].
func (r *Request) Bind(v any) error {
	if r.decode == nil {
		return errors.Join(ErrBadArgs, errors.New("this request has no serializer"))
	}
	return r.decode(r.ContentType, r.Args, v)
}

// RetriesLeft returns how many retries the task has left; negative means no limit.
func (r *Request) RetriesLeft() int {
	limit := r.Effective.MaxRetries.Or(DefaultMaxRetries)
	if limit < 0 {
		return -1
	}
	return max(0, limit-r.Retries)
}

// SuccessorHeaders returns the headers of the tasks that follow this one: its own, and Onward over them. The map may be the
// request's own; it is for reading.
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

// WithRequest returns a context in which [FromContext] finds r. Consumers call it before the middleware runs.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// FromContext returns the request that the calling handler is running, and false outside a handler.
func FromContext(ctx context.Context) (*Request, bool) {
	r, ok := ctx.Value(requestKey{}).(*Request)
	return r, ok
}
