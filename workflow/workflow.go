// Package workflow shows the state of a submitted workflow: which steps have run, which one failed,
// and how far its groups are. Cancel of a Revoker of package revoke cancels a workflow, and Retry
// of package deadletter retries it.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// Config configures [New]. Results must be set. A Viewer closes nothing.
type Config struct {
	// Results is the result store of the consumers. It must keep records.
	Results resultstore.ResultStore
	// Stores are further result stores of the consumers, by name.
	Stores map[string]resultstore.ResultStore
	// Gatherer knows the groups. nil: Results, if it is a [resultstore.Gatherer]; else groups are not
	// shown.
	Gatherer resultstore.Gatherer
	// Wire opens sealed records. Use the same values as the consumers. Errors of sealed records are
	// not shown without its Sealer.
	Wire serializer.Wire
	// History returns the known tasks with this root, at most limit. nil: only tasks with a record are
	// shown. Tasks that wait for their start, and those of OnSuccess, OnError and handlers, are then
	// not shown.
	History func(ctx context.Context, root task.ID, limit int) ([]Known, error)
}

// Known is a task of a workflow as a history knows it.
type Known struct {
	ID     task.ID
	Parent task.ID // "": no parent
	Group  task.ID // "": no group
	Name   string
	State  task.State
	// Life is the number of times that the dead letter of the task was requeued, and Attempts the
	// number of started attempts since.
	Life, Attempts int
}

// Limits of a tree. Further tasks are left out, see [Tree].
const (
	MaxTasks   = 5000
	MaxMembers = 500 // of one group
)

// unknownInARow is the number of ids without a record after which no further step has begun.
const unknownInARow = 64

// Tree is the state of a workflow.
type Tree struct {
	// Root is the id of the workflow.
	Root task.ID
	// State is the state of the last step, as the future of the workflow returns it. It is
	// StatePending if no record of that step exists.
	State task.State
	// Failed is the step that ended the workflow, with its error. nil: no failure is known.
	Failed *Node
	// Steps are the tasks and groups of the workflow in the order of their composition. Those of a
	// history come last.
	Steps []*Node
	// More reports that tasks were left out because of [MaxTasks] or [MaxMembers].
	More bool
}

// Node is a task or a group of a workflow.
type Node struct {
	// ID is the id of the task or the group.
	ID task.ID
	// Group holds the counts of a group; its other fields are then empty, but for Children. nil: a
	// task.
	Group *task.GroupProgress

	Name                  string
	State                 task.State
	Retries, Life         int       // as in resultstore.Record
	StartedAt, FinishedAt time.Time // of the last attempt
	NodeID                string    // consumer that wrote the record
	Error                 *task.RemoteError
	Progress              task.ProgressValue

	// Children are the known members of a group, in the order of their index, each as its last step.
	// Children of a task are the tasks that followed it, as far as a history knows them.
	Children []*Node
}

// Viewer reads workflows. Make it with [New]. Safe for concurrent use.
type Viewer struct {
	cfg    Config
	stores []resultstore.ResultStore
	gather resultstore.Gatherer
	codec  *wire.Codec
}

// New returns a Viewer over the stores of c. It does no I/O. Returns a nil Viewer and all problems
// of c, joined; [resultstore.ErrUnsupported] if Results only carries replies.
func New(c Config) (*Viewer, error) {
	var errs []error
	switch {
	case c.Results == nil:
		errs = append(errs, errors.New("workflow: Results is not set"))
	case resultstore.RepliesOnly(c.Results):
		errs = append(errs, fmt.Errorf("workflow: %w: reply queues keep no records", resultstore.ErrUnsupported))
	}
	c.Wire.AcceptPlain = true
	codec, err := wire.New(c.Wire)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	v := &Viewer{cfg: c, stores: []resultstore.ResultStore{c.Results}, gather: resultstore.GathererOf(c.Gatherer, c.Results), codec: codec}
	for _, s := range c.Stores {
		v.stores = append(v.stores, s)
	}
	return v, nil
}

// Show returns the tree of the workflow with this id, which is the id of its last step. It reads
// each record once, so the parts of a running workflow may be from different moments.
//
// The ids of the steps derive from the id of the workflow. Steps with chosen ids, except for the
// last one, and tasks in groups inside of a Map are shown only if a history knows them.
//
// Returns [task.ErrNotFound] if no store and no history knows a task of the workflow, and
// [task.ErrBadID] for an invalid id. Returns errors of the stores and the history.
func (v *Viewer) Show(ctx context.Context, root task.ID) (*Tree, error) {
	if err := root.Check(); err != nil {
		return nil, err
	}
	s := &show{v: v, tree: &Tree{Root: root, State: task.StatePending}, nodes: make(map[task.ID]*Node)}
	if err := s.steps(ctx); err != nil {
		return nil, fmt.Errorf("workflow: show %s: %w", root, err)
	}
	if err := s.history(ctx); err != nil {
		return nil, fmt.Errorf("workflow: show %s: %w", root, err)
	}
	if len(s.nodes) == 0 {
		return nil, fmt.Errorf("workflow: show %s: %w", root, task.ErrNotFound)
	}
	s.nest()
	return s.tree, nil
}
