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

// Route is one line of a [Table]: tasks whose name matches Pattern go to Queue.
type Route struct {
	// Pattern is compared with the whole name, letter case included. '*' stands for any run of characters other than '.',
	// also none; '#' and '**' stand for any run at all. Every other character stands for itself.
	Pattern string
	Queue   string
}

// TableConfig configures [NewTable]. The zero value routes every task to [DefaultQueue].
type TableConfig struct {
	// Routes are tried in order; the first that matches decides.
	Routes []Route
	// Default is the queue of tasks that no route matches. "": [DefaultQueue].
	Default string
	// Strict refuses tasks that no route matches with [ErrNoRoute], and there is no default queue.
	Strict bool
}

// ErrNoRoute is returned by a strict [Table] for a task that none of its routes matches.
var ErrNoRoute = errors.New("router: no route for this task")

// Table routes by patterns over task names. Make one with [NewTable].
type Table struct {
	routes   []compiled
	fallback string // "" when strict
	queues   []string
}

type compiled struct {
	pattern pattern
	queue   string
}

// NewTable checks c and makes the Table. The error names every bad line of c and wraps [ErrBadConfig].
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

// Route implements [Router].
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

// Queues implements [Router]: the queues in the order of the routes, the default queue last unless a route names it. The
// list belongs to the caller.
func (t *Table) Queues() []string { return slices.Clone(t.queues) }

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

var _ Router = (*Table)(nil)
