package inspect

import (
	"context"
	"strings"

	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// GetWorkflow implements [Workflows].
func (l *Local) GetWorkflow(_ context.Context, q WorkflowQuery) (Workflow, error) {
	return Workflow{Root: q.Root}, missing("workflows", needHistory)
}

// CancelWorkflow implements [Workflows].
func (l *Local) CancelWorkflow(ctx context.Context, root task.ID) (Change, error) {
	c := Change{Do: DoCancelWorkflow, Target: string(root)}
	if err := root.Check(); err != nil {
		return c, wrapped(err)
	}
	r, err := l.revoker(nil)
	if err != nil {
		return c, err
	}
	return l.change(ctx, c, nil, func(c *Change) error {
		nodes, err := r.Cancel(ctx, revoke.Options{}, root)
		for _, node := range nodes {
			c.Nodes = append(c.Nodes, NodeAnswer{Node: node})
		}
		if err == nil || CodeOf(err) == CodeNoConsumer {
			c.Done, c.Outcome = 1, string(revoke.Noted)
		}
		return err
	})
}

// RetryWorkflow implements [Workflows].
func (l *Local) RetryWorkflow(ctx context.Context, r WorkflowRetry) (Change, error) {
	c := Change{Do: DoRetryWorkflow, Target: string(r.Root)}
	letters, err := l.deadLetters()
	if err != nil {
		return c, err
	}
	if err := r.Root.Check(); err != nil {
		return c, wrapped(err)
	}
	if len(r.Queues) == 0 {
		asked, err := l.consumers(ctx)
		if err != nil {
			return c, err
		}
		if r.Queues, err = l.existing(ctx, asked); err != nil {
			return c, wrapped(err)
		}
	}
	return l.change(ctx, c, map[string]string{"queues": strings.Join(r.Queues, ",")}, func(c *Change) error {
		report, err := letters.Retry(ctx, r.Root, r.Queues...)
		c.requeued(&report)
		return err
	})
}
