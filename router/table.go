package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// ErrBadConfig is wrapped by the errors of [NewTable] and [NewHash].
var ErrBadConfig = errors.New("router: bad configuration")

// Route is a line of a [Table]: tasks whose name matches Pattern go to Queue.
type Route struct {
	// Pattern must match the whole name, case-sensitively. '*' matches any characters except '.', also
	// none. '#' and '**' match any characters. Other characters match themselves.
	Pattern string
	Queue   string
}

// TableConfig configures [NewTable]. The zero value routes every task to [DefaultQueue].
type TableConfig struct {
	// Routes are tried in order; the first match decides.
	Routes []Route
	// Default is the queue of tasks without a matching route. Default: [DefaultQueue].
	Default string
	// Strict refuses tasks without a matching route with [ErrNoRoute]. Default must then be empty.
	Strict bool
}

// ErrNoRoute is returned by a strict [Table] for a task without a matching route.
var ErrNoRoute = errors.New("router: no route for this task")

// Table selects queues by patterns of task names. Make one with [NewTable].
type Table struct {
	routes   []compiled
	fallback string // "": the table is strict
	queues   []string
}

// compiled is a [Route] with its compiled pattern.
type compiled struct {
	pattern pattern
	queue   string
}

// NewTable returns a Table for c. Returns an error that names every mistake in c and wraps
// [ErrBadConfig].
func NewTable(c TableConfig) (*Table, error) {
	t := &Table{}
	var errs []error
	for i, r := range c.Routes {
		p, err := compile(r.Pattern)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: route %d: %w", ErrBadConfig, i, err))
		}
		if err := task.CheckName(r.Queue); err != nil {
			errs = append(errs, fmt.Errorf("%w: queue of route %d: %w", ErrBadConfig, i, err))
		}
		t.routes = append(t.routes, compiled{p, r.Queue})
		t.queues = appendNew(t.queues, r.Queue)
	}
	switch {
	case c.Strict && c.Default != "":
		errs = append(errs, fmt.Errorf("%w: a strict table has no default queue", ErrBadConfig))
	case c.Strict && len(c.Routes) == 0:
		errs = append(errs, fmt.Errorf("%w: a strict table without routes refuses everything", ErrBadConfig))
	case !c.Strict:
		t.fallback = c.Default
		if t.fallback == "" {
			t.fallback = DefaultQueue
		}
		if err := task.CheckName(t.fallback); err != nil {
			errs = append(errs, fmt.Errorf("%w: default queue: %w", ErrBadConfig, err))
		}
		t.queues = appendNew(t.queues, t.fallback)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// Route returns the queue of the first matching route, else the default queue. Returns [ErrNoRoute]
// if the table is strict.
func (t *Table) Route(_ context.Context, e *task.Envelope) (string, error) {
	for i := range t.routes {
		if t.routes[i].pattern.match(e.Name) {
			return t.routes[i].queue, nil
		}
	}
	if t.fallback == "" {
		return "", fmt.Errorf("%w: %q", ErrNoRoute, e.Name)
	}
	return t.fallback, nil
}

// Queues returns a copy of the queues in the order of the routes, then the default queue unless a
// route names it.
func (t *Table) Queues() []string { return slices.Clone(t.queues) }

// appendNew appends s to list unless list contains it, and returns the result.
func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

var _ Router = (*Table)(nil)
