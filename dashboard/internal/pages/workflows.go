package pages

import (
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/cmdline"
	"github.com/swarmiji/swarmiji/task"
)

type workflowsData struct {
	inspect.WorkflowPage
	State inspect.State
}

func (p *Pages) workflows(r *request) (any, string, error) {
	q := inspect.WorkflowQuery{State: inspect.State(r.value("state")), Limit: pageSize, Cursor: r.value("cursor")}
	args := []string{"workflow", "ls"}
	if q.State != "" {
		args = append(args, "--state", string(q.State))
	}
	page, err := p.api.ListWorkflows(r.Context(), q)
	return of(&workflowsData{page, q.State}, err), cmdline.Swarmiji(args...), err
}

type workflowData struct {
	inspect.Workflow
	Graph graph
}

func (p *Pages) workflow(r *request) (any, string, error) {
	id := r.value("id")
	r.title = "Workflow " + short(60, id)
	w, err := p.api.GetWorkflow(r.Context(), task.ID(id))
	return of(&workflowData{w, draw(w.Steps)}, err), cmdline.Swarmiji("workflow", "show", id), err
}
