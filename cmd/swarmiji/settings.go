package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/inspect"
)

type settled struct {
	Queue string    `json:"queue,omitempty"`
	Task  string    `json:"task,omitempty"`
	Done  string    `json:"done"`
	Until time.Time `json:"until,omitzero"`
}

func toLiving(cmd *cobra.Command) bool {
	f := cmd.Flags()
	return f.Changed("node") || f.Changed("replies") || f.Changed("collect")
}

func (a *app) onlyLiving() {
	a.Say("this reached the consumers that run now; ones that start later do not know it")
}

type pauseOptions struct {
	tasks    []string
	duration time.Duration
	reason   string
}

// stored calls do for each queue and each task through the inspection API, and prints a row for
// each. do is given the name of a queue or of a task; the other one is "". done names the change.
func (a *app) stored(cmd *cobra.Command, queues, tasks []string, done string, do func(ctx context.Context, api inspect.API, queue, task string) (inspect.Change, error)) error {
	return a.Inspect(cmd.Context(), cli.Inspection{Listen: cli.ListenTime}, func(ctx context.Context, api inspect.API) error {
		out := []settled{}
		t := &cli.Table{Head: []string{"QUEUE", "TASK", "DONE", "UNTIL"}}
		var errs []error
		each := func(queue, task string) {
			c, err := do(ctx, api, queue, task)
			errs = append(errs, err, cli.NodeErrors(c.Nodes))
			a.Noted(c.Notes)
			if err != nil || c.Done == 0 && !c.Stored { // no consumer has obeyed
				return
			}
			row := settled{Queue: queue, Task: task, Done: done, Until: c.At}
			if c.Done == 0 {
				row.Done = "not set"
			}
			out = append(out, row)
			t.Add(queue, task, row.Done, shownTime(row.Until))
		}
		for _, q := range queues {
			each(q, "")
		}
		for _, name := range tasks {
			each("", name)
		}
		if len(out) == 0 {
			return errors.Join(errs...)
		}
		return errors.Join(append([]error{a.Show(out, t)}, errs...)...)
	})
}

// shownTime returns a time for a table, "" for none.
func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

func (a *app) pause(cmd *cobra.Command, queues []string, o *pauseOptions) error {
	if o.duration < 0 {
		return fmt.Errorf("%w: --for is %v", cli.ErrUsage, o.duration)
	}
	var until time.Time
	if o.duration > 0 {
		until = time.Now().Add(o.duration).Truncate(time.Millisecond)
	}
	return a.stored(cmd, queues, o.tasks, "paused", func(ctx context.Context, api inspect.API, queue, task string) (c inspect.Change, err error) {
		if task != "" {
			c, err = api.PauseTasks(ctx, inspect.TaskPause{Name: task, Until: until, Reason: o.reason})
		} else {
			c, err = api.PauseQueue(ctx, inspect.Pause{Queue: queue, Until: until, Reason: o.reason})
		}
		c.At = until
		return c, err
	})
}

func (a *app) resume(cmd *cobra.Command, queues, tasks []string) error {
	return a.stored(cmd, queues, tasks, "resumed", func(ctx context.Context, api inspect.API, queue, task string) (inspect.Change, error) {
		if task != "" {
			return api.ResumeTasks(ctx, task)
		}
		return api.ResumeQueue(ctx, queue)
	})
}

func (a *app) setLimit(cmd *cobra.Command, queues, tasks []string, rate string, concurrency int) error {
	if rate == control.RateDefault {
		rate = ""
	}
	done := "limited"
	if rate == "" && concurrency == 0 {
		done = "not limited"
	}
	return a.stored(cmd, queues, tasks, done, func(ctx context.Context, api inspect.API, queue, task string) (inspect.Change, error) {
		return api.SetLimit(ctx, inspect.Limit{Queue: queue, Name: task, Rate: rate, Concurrency: concurrency})
	})
}

func notStored(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("%w: --%s is for stored settings; name a queue or a task, without --node, --replies and --collect", cli.ErrUsage, name)
		}
	}
	return nil
}
