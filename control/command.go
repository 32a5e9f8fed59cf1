package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// Action is what a command asks for. The values are part of the wire format.
type Action string

// The actions.
const (
	DoPing       Action = "ping"       // answer with the queues that are consumed
	DoStats      Action = "stats"      // answer with sizes and totals
	DoActive     Action = "active"     // answer with the tasks that run
	DoReserved   Action = "reserved"   // answer with the tasks that were taken and wait before they start: for their rate, a worker, a pool
	DoRegistered Action = "registered" // answer with the names of the tasks that have a handler
	DoRevoke     Action = "revoke"     // revoke the tasks of Command.IDs
	DoScale      Action = "scale"      // give each of Command.Queues Command.Workers workers
	DoPause      Action = "pause"      // take no new task from Command.Queues, or from any queue
	DoResume     Action = "resume"     // take tasks again
	DoRateLimit  Action = "rate-limit" // limit how often Command.Task starts to Command.Rate
	DoShutdown   Action = "shutdown"   // stop as at a first signal; with Command.Kill as at a second
)

// Actions returns all actions, in the order of their constants. The slice belongs to the caller.
func Actions() []Action {
	return []Action{
		DoPing, DoStats, DoActive, DoReserved, DoRegistered, DoRevoke, DoScale, DoPause, DoResume, DoRateLimit, DoShutdown,
	}
}

// Limits of a command.
const (
	MaxTargets = 64    // Nodes, Queues: entries
	MaxIDs     = 50    // IDs: entries
	MaxWorkers = 10000 // Workers
)

// RateDefault is the Rate of [DoRateLimit] that takes back what was set, so that the limit is the one of the task again.
const RateDefault = "default"

// ErrCommand is a command that cannot be sent or obeyed. The error around it says what is wrong with it.
var ErrCommand = errors.New("control: bad command")

// Command is one order to any number of nodes. It is a value; neither end changes it.
type Command struct {
	// Do says what is to be done.
	Do Action `json:"do"`
	// Nodes are the ids of the nodes that are meant. None: all.
	Nodes []string `json:"nodes,omitempty"`
	// Queues are the queues that are meant: only nodes that consume one of them are concerned, and an action that is about
	// queues or tasks is then about these alone. None: all.
	Queues []string `json:"queues,omitempty"`
	// Workers is the number of workers of [DoScale], at least 1.
	Workers int `json:"workers,omitempty"`
	// Task and Rate are the name and the limit of [DoRateLimit], see task.ParseRate; "" for Rate lifts the limit, [RateDefault] takes
	// back what was set before.
	Task string `json:"task,omitempty"`
	Rate string `json:"rate,omitempty"`
	// IDs are the tasks of [DoRevoke]; Terminate also cancels the contexts of those that run.
	IDs       []task.ID `json:"ids,omitempty"`
	Terminate bool      `json:"terminate,omitempty"`
	// Kill makes [DoShutdown] not wait for running tasks.
	Kill bool `json:"kill,omitempty"`
}

// Check returns every problem of c, joined; each wraps [ErrCommand]. Both ends call it.
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
			bad("scale names no queue")
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

// concerns reports whether a node with these queues is meant.
func (c *Command) concerns(node string, queues []string) bool {
	if len(c.Nodes) > 0 && !slices.Contains(c.Nodes, node) {
		return false
	}
	return len(c.Queues) == 0 || len(c.among(queues)) > 0
}

// among returns those of queues that c is about.
func (c *Command) among(queues []string) []string {
	if len(c.Queues) == 0 {
		return queues
	}
	return slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return !slices.Contains(c.Queues, q) })
}
