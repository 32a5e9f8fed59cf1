package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/task"
)

// ListWorkers implements [Workers].
func (l *Local) ListWorkers(ctx context.Context, q WorkerQuery) (WorkerPage, error) {
	page := WorkerPage{Workers: []Worker{}}
	n, err := pageLimit(q.Limit)
	if err != nil {
		return page, err
	}
	c, err := l.census(ctx)
	if err != nil {
		return page, err
	}
	if len(c.nodes) == 0 {
		return page, wrapped(c.err)
	}
	for _, w := range c.sorted() {
		switch {
		case q.Cursor != "" && w.Node <= q.Cursor:
		case len(page.Workers) == n:
			page.Next = page.Workers[n-1].Node
			return page, nil
		default:
			page.Workers = append(page.Workers, w)
		}
	}
	return page, nil
}

// GetWorker implements [Workers].
func (l *Local) GetWorker(ctx context.Context, node string) (Worker, error) {
	if err := task.CheckName(node); err != nil {
		return Worker{}, wrapped(err)
	}
	c, err := l.census(ctx)
	if err != nil {
		return Worker{}, err
	}
	if w := c.nodes[node]; w != nil {
		return *w, nil
	}
	return Worker{}, errorf(CodeNotFound, "no worker %s answers or sends heartbeats", node)
}

// ListRunning implements [Tasks].
func (l *Local) ListRunning(ctx context.Context, q RunningQuery) (RunningPage, error) {
	page := RunningPage{Tasks: []RunningTask{}, Nodes: []string{}}
	if l.cfg.Control == nil {
		return page, missing("the tasks of consumers", needControl)
	}
	cmd := control.Command{Do: control.DoActive, Nodes: q.Nodes, Queues: q.Queues}
	if q.Held {
		cmd.Do = control.DoReserved
	}
	replies, err := l.send(ctx, cmd)
	var failed []string
	for i := range replies {
		r := &replies[i]
		if r.Error != "" {
			failed = append(failed, "node "+r.Node+": "+r.Error)
			continue
		}
		page.Nodes, page.More = append(page.Nodes, r.Node), page.More+r.More
		for _, t := range r.Tasks {
			page.Tasks = append(page.Tasks, RunningTask{r.Node, t.ID, t.Name, t.Queue, t.Since, t.Attempt})
		}
	}
	if err == nil && len(failed) > 0 {
		err = errorf(CodeInternal, "%s", strings.Join(failed, "; "))
	}
	return page, wrapped(err)
}

// PauseWorkers implements [Workers].
func (l *Local) PauseWorkers(ctx context.Context, t Target) (Change, error) {
	return l.order(ctx, DoPauseWorkers, t, t, control.Command{Do: control.DoPause})
}

// ResumeWorkers implements [Workers].
func (l *Local) ResumeWorkers(ctx context.Context, t Target) (Change, error) {
	return l.order(ctx, DoResumeWorkers, t, t, control.Command{Do: control.DoResume})
}

// ScaleWorkers implements [Workers].
func (l *Local) ScaleWorkers(ctx context.Context, s Scale) (Change, error) {
	t := Target{Nodes: s.Nodes, Queues: []string{s.Queue}}
	return l.order(ctx, DoScaleWorkers, t, s, control.Command{Do: control.DoScale, Workers: s.Workers})
}

// LimitWorkers implements [Workers].
func (l *Local) LimitWorkers(ctx context.Context, r RateLimit) (Change, error) {
	return l.order(ctx, DoLimitWorkers, r.Target, r, control.Command{Do: control.DoRateLimit, Task: r.Name, Rate: r.Rate})
}

// StopWorkers implements [Workers].
func (l *Local) StopWorkers(ctx context.Context, s Stop) (Change, error) {
	if !s.All && len(s.Nodes)+len(s.Queues) == 0 {
		return Change{Do: DoStopWorkers}, errorf(CodeInvalid, "no consumer is chosen; set Nodes, Queues or All")
	}
	return l.order(ctx, DoStopWorkers, s.Target, s, control.Command{Do: control.DoShutdown, Kill: s.Kill})
}

// order sends a command that changes consumers.
func (l *Local) order(ctx context.Context, do Do, t Target, detail any, cmd control.Command) (Change, error) {
	c := Change{Do: do, Target: strings.Join(slices.Concat(t.Nodes, t.Queues), ",")}
	cmd.Nodes, cmd.Queues = t.Nodes, t.Queues
	if err := cmd.Check(); err != nil {
		return c, wrapped(err)
	}
	return l.change(ctx, c, detail, func(c *Change) error {
		err := l.command(ctx, c, cmd)
		if err == nil && l.cfg.Replies > len(c.Nodes) {
			err = fmt.Errorf("%w: %d of %d", control.ErrMissing, len(c.Nodes), l.cfg.Replies)
		}
		return err
	})
}
