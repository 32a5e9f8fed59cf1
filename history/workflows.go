package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// Bounds of [Workflows].
const (
	MaxWorkflows     = 100 // workflows in a page
	defaultWorkflows = 20
	summarized       = 200 // tasks of a workflow that are counted
	workflowReads    = 20  // pages of tasks that one call reads
)

// WorkflowQuery selects a page of workflows.
type WorkflowQuery struct {
	State State  // one of [WorkflowStates]; "": any
	Limit int    // up to [MaxWorkflows]; 0: 20
	After string // WorkflowPage.Next of the page before; "": the first page
}

// WorkflowPage is a page of workflows. It may have fewer workflows than the limit, even none, and a
// Next.
type WorkflowPage struct {
	Workflows []Workflow
	Next      string // "": the list ends here
}

// Workflow describes a workflow by its recorded tasks.
type Workflow struct {
	Root task.ID
	Name string // of its last step; if that is not known, of the task that changed last
	// State describes the last step if it has ended. Otherwise it is Started or Pending if a task is,
	// and else Failed, Revoked or Pending.
	State State
	// Tasks is the number of tasks; the other numbers are parts of it.
	Tasks, Succeeded, Failed int
	Skipped                  int // revoked or expired
	Running, Waiting         int
	More                     bool // there are more tasks than 200, which are counted
	Began, Changed           time.Time
}

// WorkflowStates returns the states of a [Workflow].
func WorkflowStates() []State { return []State{Started, Pending, Succeeded, Failed, Revoked, Expired} }

// Workflows returns the workflows of which s has a task other than the last step, those whose tasks
// changed last first. A change of the last step alone does not move a workflow. A workflow that
// changes while the list is read may be missing; it is at the beginning then. Returns ErrQuery for
// a wrong query, and the errors of s.
func Workflows(ctx context.Context, s Store, q WorkflowQuery) (WorkflowPage, error) {
	page := WorkflowPage{Next: q.After}
	n := cmp.Or(q.Limit, defaultWorkflows)
	if n < 0 || n > MaxWorkflows {
		return page, fmt.Errorf("%w: the limit is %d, want 1 to %d", ErrQuery, q.Limit, MaxWorkflows)
	}
	if q.State != "" && !slices.Contains(WorkflowStates(), q.State) {
		return page, fmt.Errorf("%w: a workflow is never %q", ErrQuery, q.State)
	}
	// all tasks of workflows but the last steps
	members := Query{Terms: []Term{{Not: true, Field: FieldRoot, Op: OpIs, Values: []Value{{}}}}}
	seen := make(map[task.ID]bool)
	for read := 0; read < workflowReads && len(page.Workflows) < n; read++ {
		found, err := s.Page(ctx, members, PageOptions{Limit: n - len(page.Workflows), After: page.Next})
		if err != nil {
			return page, err
		}
		for i := range found.Records {
			r := &found.Records[i]
			if seen[r.Root] {
				continue
			}
			seen[r.Root] = true
			w, newest, err := summarize(ctx, s, r.Root)
			if err != nil {
				return page, err
			}
			earlier := q.After != "" && newest != r.ID // it is on an earlier page
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

// summarize counts the tasks of a workflow. newest is the one of them that changed last, without
// the last step of the workflow. Returns the errors of s.
func summarize(ctx context.Context, s Store, root task.ID) (w Workflow, newest task.ID, err error) {
	w.Root = root
	q := Query{Terms: []Term{{Field: FieldRoot, Op: OpIs, Values: []Value{{Text: string(root)}}}}}
	found, err := s.Page(ctx, q, PageOptions{Limit: summarized})
	if err != nil {
		return w, "", err
	}
	w.More = found.Next != ""
	var last *Record // the last step
	for i := range found.Records {
		r := &found.Records[i]
		if r.ID == root {
			last = r
		} else if newest == "" {
			newest = r.ID
		}
		w.count(r)
	}
	switch {
	case last != nil && last.State.Terminal():
		w.State = last.State
	case w.Running > 0:
		w.State = Started
	case w.Waiting > 0:
		w.State = Pending
	case w.Failed > 0:
		w.State = Failed
	case w.Skipped > 0:
		w.State = Revoked
	default:
		w.State = Pending // the next step was not heard of yet
	}
	if last != nil {
		w.Name = last.Name
	}
	return w, newest, nil
}

// count adds a task.
func (w *Workflow) count(r *Record) {
	w.Tasks++
	switch r.State {
	case Succeeded:
		w.Succeeded++
	case Failed:
		w.Failed++
	case Revoked, Expired:
		w.Skipped++
	case Started, Received:
		w.Running++
	default:
		w.Waiting++
	}
	began := r.Sent
	if began.IsZero() {
		began = cmp.Or(r.Received, r.Started, r.Changed)
	}
	if w.Began.IsZero() || began.Before(w.Began) {
		w.Began = began
	}
	w.Changed = latest(w.Changed, r.Changed)
	if w.Name == "" {
		w.Name = r.Name
	}
}
