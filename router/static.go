package router

import (
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// Static routes every task to one queue. Default: [DefaultQueue].
type Static string

// Route returns the queue. It never fails.
func (s Static) Route(context.Context, *task.Envelope) (string, error) { return s.queue(), nil }

// Queues returns the queue.
func (s Static) Queues() []string { return []string{s.queue()} }

// queue returns s, or [DefaultQueue] if s is empty.
func (s Static) queue() string {
	if s == "" {
		return DefaultQueue
	}
	return string(s)
}

// Func is a Router that calls a function. It is safe for concurrent use if Fn is.
type Func struct {
	// Fn selects the queue. nil: [DefaultQueue] for every task.
	Fn func(ctx context.Context, e *task.Envelope) (queue string, err error)
	// List holds every queue that Fn may return, the most urgent first. nil: [DefaultQueue]. Another
	// queue of Fn is used, but no producer declares it.
	List []string
}

// Route returns the result of Fn, or [DefaultQueue] if Fn is nil.
func (f Func) Route(ctx context.Context, e *task.Envelope) (string, error) {
	if f.Fn == nil {
		return DefaultQueue, nil
	}
	return f.Fn(ctx, e)
}

// Queues returns a copy of List, or only [DefaultQueue] if List is empty.
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
