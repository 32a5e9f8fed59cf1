package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Action is the kind of a command. The values are part of the wire format.
type Action string

// Actions of a command.
const (
	DoPing   Action = "ping"   // reply with the consumed queues
	DoStats  Action = "stats"  // reply with sizes and totals
	DoActive Action = "active" // reply with the running tasks
	// reply with the received tasks that wait for their rate limit, a worker or a pool
	DoReserved   Action = "reserved"
	DoRegistered Action = "registered" // reply with the names of the tasks that have a handler
	DoRevoke     Action = "revoke"     // revoke the tasks in Command.IDs
	// set the number of workers of each of Command.Queues to Command.Workers
	DoScale     Action = "scale"
	DoPause     Action = "pause"      // receive no new tasks from Command.Queues, or from any queue
	DoResume    Action = "resume"     // receive tasks again
	DoRateLimit Action = "rate-limit" // limit the rate of starts of Command.Task to Command.Rate
	// stop as at a first signal; with Command.Kill as at a second signal
	DoShutdown Action = "shutdown"
	// begin to consume Command.Queue, with Command.Workers; 0: the node's default
	DoAddQueue    Action = "add-queue"
	DoRemoveQueue Action = "remove-queue" // no longer consume Command.Queue
)

// Actions returns all actions, in the order of their constants. The slice belongs to the caller.
func Actions() []Action {
	return []Action{
		DoPing, DoStats, DoActive, DoReserved, DoRegistered, DoRevoke, DoScale, DoPause, DoResume, DoRateLimit, DoShutdown, DoAddQueue,
		DoRemoveQueue,
	}
}

// Limits of a command.
const (
	MaxTargets = 64    // Nodes, Queues: entries
	MaxIDs     = 50    // IDs: entries
	MaxWorkers = 10000 // Workers
)

// RateDefault as the Rate of [DoRateLimit] restores the rate limit of the task's definition.
const RateDefault = "default"

// ErrCommand is wrapped by the errors of commands that cannot be sent or executed.
var ErrCommand = errors.New("control: bad command")

// Command is a request to any number of nodes.
type Command struct {
	// Do is the action.
	Do Action `json:"do"`
	// Nodes are the ids of the nodes that execute the command. Empty: all nodes.
	Nodes []string `json:"nodes,omitempty"`
	// Queues limits the command to nodes that consume one of these queues. An action about queues or
	// tasks is limited to these queues. Empty: all queues.
	Queues []string `json:"queues,omitempty"`
	// Workers is the number of workers for [DoScale], at least 1, and for [DoAddQueue].
	Workers int `json:"workers,omitempty"`
	// Queue is the queue for [DoAddQueue] and [DoRemoveQueue].
	Queue string `json:"queue,omitempty"`
	// Task and Rate are the task's name and the limit for [DoRateLimit], see task.ParseRate. A Rate of
	// "" removes the limit, [RateDefault] restores the task's own.
	Task string `json:"task,omitempty"`
	Rate string `json:"rate,omitempty"`
	// IDs are the tasks for [DoRevoke]. Terminate also cancels the contexts of running tasks.
	IDs       []task.ID `json:"ids,omitempty"`
	Terminate bool      `json:"terminate,omitempty"`
	// Kill makes [DoShutdown] not wait for running tasks.
	Kill bool `json:"kill,omitempty"`
}

// Check returns an error that joins all problems of c; each wraps [ErrCommand]. The action must be
// known, and the numbers of nodes, queues and ids within their limits. All names must be valid. The
// fields of the action must be set: queues and Workers for [DoScale], Task and a valid Rate for
// [DoRateLimit], IDs for [DoRevoke], Queue for [DoAddQueue] and [DoRemoveQueue].
//
// Client and server call it.
func (c *Command) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrCommand}, args...)...))
	}
	if !slices.Contains(Actions(), c.Do) {
		bad("unknown action %q", utf.Cut(string(c.Do), 32))
	}
	for what, names := range map[string][]string{"nodes": c.Nodes, "queues": c.Queues} {
		if len(names) > MaxTargets {
			bad("%d %s, at most %d", len(names), what, MaxTargets)
			continue
		}
		for _, name := range names {
			if err := task.CheckName(name); err != nil {
				bad("%s: %w", what, err)
			}
		}
	}
	switch c.Do {
	case DoScale:
		if len(c.Queues) == 0 {
			bad("scale needs at least one queue")
		}
		if c.Workers < 1 || c.Workers > MaxWorkers {
			bad("scale to %d workers, want 1 to %d", c.Workers, MaxWorkers)
		}
	case DoRateLimit:
		if err := task.CheckName(c.Task); err != nil {
			bad("task: %w", err)
		}
		if _, _, err := task.ParseRate(c.Rate); err != nil && c.Rate != RateDefault {
			bad("rate: %w", err)
		}
	case DoAddQueue, DoRemoveQueue:
		if err := task.CheckName(c.Queue); err != nil {
			bad("queue: %w", err)
		}
		if c.Workers < 0 || c.Workers > MaxWorkers {
			bad("%d workers, want 0 to %d", c.Workers, MaxWorkers)
		}
	case DoRevoke:
		if len(c.IDs) == 0 || len(c.IDs) > MaxIDs {
			bad("%d ids to revoke, want 1 to %d", len(c.IDs), MaxIDs)
		}
		for _, id := range c.IDs[:min(len(c.IDs), MaxIDs)] {
			if err := id.Check(); err != nil {
				bad("ids: %w", err)
			}
		}
	}
	return errors.Join(errs...)
}

// concerns reports whether a node with this id and these queues must execute c: c names the node or
// no nodes, and one of the queues or no queues.
func (c *Command) concerns(node string, queues []string) bool {
	if len(c.Nodes) > 0 && !slices.Contains(c.Nodes, node) {
		return false
	}
	return len(c.Queues) == 0 || len(c.among(queues)) > 0
}

// among returns those of the given queues to which c applies, in the given order. If c names no
// queues, it returns the slice queues itself.
func (c *Command) among(queues []string) []string {
	if len(c.Queues) == 0 {
		return queues
	}
	return slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return !slices.Contains(c.Queues, q) })
}
