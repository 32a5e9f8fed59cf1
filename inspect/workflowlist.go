package inspect

import (
	"cmp"
	"context"
	"slices"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/task"
)

const (
	defaultWorkflows = 20  // of ListWorkflows
	summarized       = 200 // tasks of a workflow that are counted
	workflowReads    = 20  // pages of tasks that one call reads to find workflows in the wanted state
)

// WorkflowStates returns the states of a [WorkflowSummary].
func WorkflowStates() []State {
	return []State{
		StateRunning, StateWaiting, State(task.StateSucceeded), State(task.StateFailed), State(task.StateRevoked), State(task.StateExpired),
	}
}

// ListWorkflows implements [Workflows].
func (l *Local) ListWorkflows(ctx context.Context, q WorkflowQuery) (WorkflowPage, error) {
	page := WorkflowPage{Workflows: []WorkflowSummary{}}
	n := cmp.Or(q.Limit, defaultWorkflows)
	if n < 0 || n > DefaultLimit {
		return page, errorf(CodeInvalid, "the limit is %d, want 1 to %d", q.Limit, DefaultLimit)
	}
	if q.State != "" && !slices.Contains(WorkflowStates(), q.State) {
		return page, errorf(CodeInvalid, "%q is no state of a workflow, want one of %v", q.State, WorkflowStates())
	}
	members, err := l.query(`-root:""`) // all tasks of workflows but the last steps
	if err != nil {
		return page, err
	}
	page.Next = q.Cursor
	seen := make(map[task.ID]bool)
	for read := 0; read < workflowReads && len(page.Workflows) < n; read++ {
		found, err := l.cfg.History.Page(ctx, members, history.PageOptions{Limit: n - len(page.Workflows), After: page.Next})
		if err != nil {
			return page, wrapped(err)
		}
		for i := range found.Records {
			r := &found.Records[i]
			if seen[r.Root] {
				continue
			}
			seen[r.Root] = true
			w, newest, err := l.summary(ctx, r.Root)
			if err != nil {
				return page, wrapped(err)
			}
			earlier := q.Cursor != "" && newest != r.ID // it is on an earlier page
			if !earlier && (q.State == "" || q.State == w.State) {
				page.Workflows = append(page.Workflows, w)
			}
		}
		if page.Next = found.Next; page.Next == "" {
			break
		}
	}
	return page, nil
}

// summary counts the tasks of a workflow. newest is the one of them that changed last, without the
// last step of the workflow. Returns the errors of the history.
func (l *Local) summary(ctx context.Context, root task.ID) (w WorkflowSummary, newest task.ID, err error) {
	w.Root = root
	q := history.Query{Terms: []history.Term{{Field: history.FieldRoot, Op: history.OpIs, Values: []history.Value{{Text: string(root)}}}}}
	found, err := l.cfg.History.Page(ctx, q, history.PageOptions{Limit: summarized})
	if err != nil {
		return w, "", err
	}
	w.More = found.Next != ""
	var last *Task // the last step
	for i := range found.Records {
		t := taskOf(&found.Records[i])
		if t.ID == root {
			last = &t
		} else if newest == "" {
			newest = t.ID
		}
		w.count(&t)
	}
	w.state(last)
	return w, newest, nil
}

// count adds a task.
func (w *WorkflowSummary) count(t *Task) {
	w.Tasks++
	switch t.State {
	case State(task.StateSucceeded):
		w.Succeeded++
	case State(task.StateFailed), StateDead:
		w.Failed++
	case State(task.StateRevoked), State(task.StateExpired):
		w.Skipped++
	case StateRunning, StateHeld:
		w.Running++
	default:
		w.Waiting++
	}
	if at := cmp.Or(t.Sent, t.Started, t.Changed); w.Began.IsZero() || at.Before(w.Began) {
		w.Began = at
	}
	if t.Changed.After(w.Changed) {
		w.Changed = t.Changed
	}
	first(&w.Name, t.Name) // of the task that changed last, unless the last step is known
}

// state sets State and Name, after all tasks were counted. last is nil if the last step is not
// known.
func (w *WorkflowSummary) state(last *Task) {
	if last != nil {
		w.Name = last.Name
	}
	over := last != nil && (last.State == StateDead || task.State(last.State).Terminal())
	switch {
	case over:
		w.State = last.State
	case w.Running > 0:
		w.State = StateRunning
	case w.Waiting > 0:
		w.State = StateWaiting
	case w.Failed > 0:
		w.State = State(task.StateFailed)
	case w.Skipped > 0:
		w.State = State(task.StateRevoked)
	default:
		w.State = StateWaiting // the next step was not heard of yet
	}
	if w.State == StateDead {
		w.State = State(task.StateFailed)
	}
}
