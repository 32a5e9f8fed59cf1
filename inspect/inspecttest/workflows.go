package inspecttest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/memhistory"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// testWorkflowList reads the list in pages of each size. The tasks of the workflows change in
// turns, so that pages of tasks have tasks of workflows that were listed before.
func testWorkflowList(w *world) {
	store, err := memhistory.New(memhistory.Config{})
	w.no(err)
	c := w.config(0)
	c.History = store
	api := w.h.API(w.T, c, false)
	now := time.Now().UTC().Truncate(time.Millisecond)
	var facts []*history.Facts
	clock := 0
	tell := func(typ string, id, root task.ID) {
		clock++
		e := events.Event{Type: typ, TaskID: id, Name: "suite." + string(id), Queue: queue, NodeID: node, Time: now.Add(time.Duration(clock) * time.Second)}
		if root != id {
			e.Fields = events.TaskInfo{Root: root}.Fields(nil)
		}
		facts = append(facts, history.NewFacts(&e))
	}
	const flows = 6
	want := make([]inspect.WorkflowSummary, flows)
	id := func(flow, step int) task.ID { return task.ID(fmt.Sprint("f", flow, "-", step)) }
	last := func(flow int) task.ID { return id(flow, 2) }
	for step := range 3 {
		for flow := range flows {
			tell(events.TaskSent, id(flow, step), last(flow))
			if step == 0 {
				want[flow].Began = now.Add(time.Duration(clock) * time.Second)
			}
			tell(events.TaskStarted, id(flow, step), last(flow))
			if step == 1 && flow == 1 || step == 2 && flow == 2 {
				tell(events.TaskFailed, id(flow, step), last(flow))
				want[flow].Failed = 1
			} else if step < 2 || flow < 4 {
				tell(events.TaskSucceeded, id(flow, step), last(flow))
				want[flow].Succeeded++
			} else {
				want[flow].Running = 1
			}
			want[flow].Changed = now.Add(time.Duration(clock) * time.Second)
		}
	}
	for flow := range want {
		s := &want[flow]
		s.Root, s.Name, s.Tasks, s.State = last(flow), "suite."+string(last(flow)), 3, inspect.State(task.StateSucceeded)
		if flow == 2 {
			s.State = inspect.State(task.StateFailed)
		}
		if flow >= 4 {
			s.State = inspect.StateRunning
		}
	}
	tell(events.TaskSent, "alone", "alone")
	slices.Reverse(want) // the newest first
	_, err = store.Record(w.ctx(), &history.Batch{Facts: facts, Now: now})
	w.no(err)

	list := func(q inspect.WorkflowQuery) (all []inspect.WorkflowSummary) {
		w.Helper()
		for pages := 0; ; pages++ {
			page, err := api.ListWorkflows(w.ctx(), q)
			w.no(err)
			if len(page.Workflows) > q.Limit || pages > 100 {
				w.Fatalf("page %d of %+v has %d workflows", pages, q, len(page.Workflows))
			}
			all = append(all, page.Workflows...)
			if q.Cursor = page.Next; page.Next == "" {
				return all
			}
		}
	}
	for limit := 1; limit <= flows+1; limit++ {
		if diff := cmp.Diff(want, list(inspect.WorkflowQuery{Limit: limit})); diff != "" {
			w.Errorf("in pages of %d: (-want +got)\n%s", limit, diff)
		}
	}
	for _, state := range inspect.WorkflowStates() {
		var some []inspect.WorkflowSummary
		for _, s := range want {
			if s.State == state {
				some = append(some, s)
			}
		}
		if diff := cmp.Diff(some, list(inspect.WorkflowQuery{State: state, Limit: 2})); diff != "" {
			w.Errorf("%s: (-want +got)\n%s", state, diff)
		}
	}
	for _, q := range []inspect.WorkflowQuery{{Limit: -1}, {Limit: inspect.DefaultLimit + 1}, {State: "gone"}, {Cursor: "x"}} {
		_, err = api.ListWorkflows(w.ctx(), q)
		w.is(err, inspect.ErrInvalid)
	}
	_, err = w.h.API(w.T, w.config(0), false).ListWorkflows(w.ctx(), inspect.WorkflowQuery{})
	w.is(err, inspect.ErrUnsupported)
}
