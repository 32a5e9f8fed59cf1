package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Node is what commands are obeyed by. A consumer is one, see consumer.Config.Control. Its methods are called one at a time
// and return soon.
type Node interface {
	// NodeID returns the node's name in events, which is how commands name it.
	NodeID() string
	// Queues returns the names of the queues that it consumes.
	Queues() []string
	// Stats returns its present sizes and totals.
	Stats() Stats
	// Active returns the tasks that run.
	Active() []Task
	// Reserved returns the tasks that it has taken and that wait before they start, see [DoReserved].
	Reserved() []Task
	// Names returns the names of the tasks that have a handler.
	Names() []string
	// Scale sets the number of workers of a queue. Tasks that run are not ended by it.
	Scale(queue string, workers int) error
	// Pause makes it take no new tasks from these queues, Resume take them again.
	Pause(queues ...string) error
	Resume(queues ...string) error
	// SetRateLimit limits how often tasks of a name start; "" lifts the limit, [RateDefault] takes back what was set.
	SetRateLimit(name, rate string) error
	// Stop ends it when its running tasks have ended, Kill does not wait for them.
	Stop()
	Kill()
}

// Revoker is a Node that can revoke tasks, as consumers can. Others answer [DoRevoke] with an error.
type Revoker interface {
	// Revoke revokes tasks, for itself at once; terminate also cancels the contexts of those that run. It may take seconds to tell
	// others, within ctx.
	Revoke(ctx context.Context, terminate bool, ids ...task.ID) error
}

// obey does what c says and returns the answer. after, where it is not nil, is to be called when the answer is on its way.
func obey(ctx context.Context, n Node, c *Command) (r Reply, after func()) {
	queues := c.among(n.Queues())
	slices.Sort(queues)
	r = Reply{Node: n.NodeID(), Queues: queues}
	about := func(queue string) bool { return len(c.Queues) == 0 || slices.Contains(c.Queues, queue) }
	var err error
	switch c.Do {
	case DoPing:
	case DoStats:
		s := n.Stats()
		s.Queues = slices.DeleteFunc(s.Queues, func(q QueueStats) bool { return !about(q.Name) })
		r.Stats = &s
	case DoActive:
		r.Tasks = sorted(n.Active(), about)
	case DoReserved:
		r.Tasks = sorted(n.Reserved(), about)
	case DoRegistered:
		r.Names = n.Names()
	case DoRevoke:
		if rv, ok := capability.As[Revoker](n); ok {
			err = rv.Revoke(ctx, c.Terminate, c.IDs...)
		} else {
			err = errors.New("this node revokes nothing by command; a revoke.Revoker does, or swarmiji revoke")
		}
	case DoScale:
		err = each(queues, func(q string) error { return n.Scale(q, c.Workers) })
	case DoPause:
		err = n.Pause(queues...)
	case DoResume:
		err = n.Resume(queues...)
	case DoRateLimit:
		err = n.SetRateLimit(c.Task, c.Rate)
	case DoShutdown:
		after = n.Stop
		if c.Kill {
			after = n.Kill
		}
	default:
		err = fmt.Errorf("%w: unknown action", ErrCommand)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, after
}

func each(queues []string, do func(queue string) error) error {
	var errs []error
	for _, q := range queues {
		errs = append(errs, do(q))
	}
	return errors.Join(errs...)
}

// sorted returns the tasks of the queues that are asked about, the oldest first.
func sorted(ts []Task, about func(queue string) bool) []Task {
	ts = slices.DeleteFunc(ts, func(t Task) bool { return !about(t.Queue) })
	slices.SortStableFunc(ts, func(a, b Task) int { return a.Since.Compare(b.Since) })
	return ts
}
