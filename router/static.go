package router

import (
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// Static routes every task to one queue. The empty Static is [DefaultQueue].
type Static string

// Route implements [Router]; it never fails.
func (s Static) Route(context.Context, *task.Envelope) (string, error) { return s.queue(), nil }

// Queues implements [Router].
func (s Static) Queues() []string { return []string{s.queue()} }

func (s Static) queue() string {
	if s == "" {
		return DefaultQueue
	}
	return string(s)
}

// Func makes a Router of a function. It may be used from any goroutine when Fn may.
type Func struct {
	// Fn chooses the queue. nil: [DefaultQueue] for every task.
	Fn func(ctx context.Context, e *task.Envelope) (queue string, err error)
	// List is every queue that Fn may name, most urgent first. nil: [DefaultQueue]. A queue that Fn names and List does not
	// is used, but nobody declares it.
	List []string
}

// Route implements [Router]: it returns what Fn returns.
func (f Func) Route(ctx context.Context, e *task.Envelope) (string, error) {
	if f.Fn == nil {
		return DefaultQueue, nil
	}
	return f.Fn(ctx, e)
}

// Queues implements [Router]. The list belongs to the caller.
func (f Func) Queues() []string {
	if len(f.List) == 0 {
		return []string{DefaultQueue}
	}
	return slices.Clone(f.List)
}

var (
	_ Router = Static("")
	_ Router = Func{}
)
