package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Node executes commands. A consumer is one, see consumer.Config.Control. The server calls its
// methods one at a time. They must return quickly.
type Node interface {
	// NodeID returns the node's id, which commands use to name it.
	NodeID() string
	// Queues returns the names of the consumed queues.
	Queues() []string
	// Stats returns current sizes and totals.
	Stats() Stats
	// Active returns the running tasks, the oldest first.
	Active() []Task
	// Reserved returns the received tasks that wait for their start, the oldest first; see
	// [DoReserved].
	Reserved() []Task
	// Names returns the names of the tasks that have a handler.
	Names() []string
	// Scale sets the number of workers of a queue. Running tasks continue.
	Scale(queue string, workers int) error
	// Pause stops receiving new tasks from the queues. Resume receives tasks from them again.
	Pause(queues ...string) error
	Resume(queues ...string) error
	// SetRateLimit limits the rate at which tasks of this name start. "" removes the limit;
	// [RateDefault] restores the task's own.
	SetRateLimit(name, rate string) error
	// Stop stops the node when its running tasks have ended. Kill does not wait for them.
	Stop()
	Kill()
}

// Revoker is a Node that can revoke tasks, as consumers can. Other nodes reply to [DoRevoke] with
// an error.
type Revoker interface {
	// Revoke revokes tasks. It takes effect on this node at once. Informing other nodes may take
	// seconds, limited by ctx. terminate also cancels the contexts of running tasks.
	Revoke(ctx context.Context, terminate bool, ids ...task.ID) error
}

// QueueChanger is a Node whose queues can change, as those of consumers can. Other nodes reply to
// [DoAddQueue] and [DoRemoveQueue] with an error.
type QueueChanger interface {
	// ServeQueue begins to consume a queue with this number of workers; 0: the default of the node.
	ServeQueue(ctx context.Context, name string, workers int) error
	// LeaveQueue ends the consumption of a queue. Running tasks may continue after it has returned.
	LeaveQueue(ctx context.Context, name string) error
}

// execute executes c on n and returns the reply, with the error of the node in Reply.Error. It does
// not check whether c concerns n. If after is not nil, which is so for [DoShutdown], call it after
// sending the reply: it stops the node.
func execute(ctx context.Context, n Node, c *Command) (r Reply, after func()) {
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
		r.Tasks = ofQueues(n.Active(), about)
	case DoReserved:
		r.Tasks = ofQueues(n.Reserved(), about)
	case DoRegistered:
		r.Names = n.Names()
	case DoRevoke:
		if rv, ok := capability.As[Revoker](n); ok {
			err = rv.Revoke(ctx, c.Terminate, c.IDs...)
		} else {
			err = errors.New("this node cannot revoke tasks; use revoke.Revoker or the command swarmiji revoke")
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
	case DoAddQueue, DoRemoveQueue:
		qc, ok := capability.As[QueueChanger](n)
		switch {
		case !ok:
			err = errors.New("the queues of this node cannot change")
		case c.Do == DoAddQueue:
			err = qc.ServeQueue(ctx, c.Queue, c.Workers)
		default:
			err = qc.LeaveQueue(ctx, c.Queue)
		}
		r.Queues = []string{c.Queue}
	default:
		err = fmt.Errorf("%w: unknown action", ErrCommand)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, after
}

// each calls do for each queue, also after an error, and returns the joined errors.
func each(queues []string, do func(queue string) error) error {
	var errs []error
	for _, q := range queues {
		errs = append(errs, do(q))
	}
	return errors.Join(errs...)
}

// ofQueues returns the tasks for whose queue about returns true, in their order. It changes ts.
func ofQueues(ts []Task, about func(queue string) bool) []Task {
	return slices.DeleteFunc(ts, func(t Task) bool { return !about(t.Queue) })
}
