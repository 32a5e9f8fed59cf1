package inspect

import "context"

// GetWorkflow implements [Workflows].
func (l *Local) GetWorkflow(_ context.Context, root string) (Workflow, error) {
	return Workflow{}, missing("workflow "+root, needHistory)
}
