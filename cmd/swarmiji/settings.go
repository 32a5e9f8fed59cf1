package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/settings"
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
	a.say("this reached the consumers that run now; ones that start later do not know it")
}

// changeSettings opens the store of the settings, calls do for each queue and each task, and prints
// a row for each. do is given the name of a queue or of a task; the other one is "".
func (a *app) changeSettings(cmd *cobra.Command, queues, tasks []string, do func(ctx context.Context, s settings.Store, queue, task string) (settled, error)) error {
	return a.with(cmd.Context(), open.Options{}, func(ctx context.Context, s *open.Swarm) error {
		if s.Settings == nil {
			return errors.New("no server of this URL keeps settings; name one for the events, such as events=redis://host")
		}
		out := []settled{}
		t := &table{head: []string{"QUEUE", "TASK", "DONE", "UNTIL"}}
		var errs []error
		each := func(queue, task string) {
			row, err := do(ctx, s.Settings, queue, task)
			switch {
			case errors.Is(err, settings.ErrBad):
				errs = append(errs, fmt.Errorf("%w: %w", errUsage, err))
			case err != nil:
				errs = append(errs, err)
			default:
				row.Queue, row.Task = queue, task
				out = append(out, row)
				until := ""
				if !row.Until.IsZero() {
					until = row.Until.Local().Format(time.RFC3339)
				}
				t.add(queue, task, row.Done, until)
			}
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
		return errors.Join(append([]error{a.show(out, t)}, errs...)...)
	})
}

func (a *app) operator() string {
	host, _ := os.Hostname() // without it the user is enough
	return utf.Cut(strings.Trim(a.getenv("USER")+"@"+host, "@"), settings.MaxBy)
}

type pauseOptions struct {
	tasks    []string
	duration time.Duration
	why      string
}

func (a *app) pause(cmd *cobra.Command, queues []string, o *pauseOptions) error {
	if o.duration < 0 {
		return fmt.Errorf("%w: --for is %v", errUsage, o.duration)
	}
	return a.changeSettings(cmd, queues, o.tasks, func(ctx context.Context, s settings.Store, queue, task string) (settled, error) {
		p := settings.Pause{By: a.operator(), Why: o.why, At: time.Now().UTC().Truncate(time.Millisecond)}
		if o.duration > 0 {
			p.Until = p.At.Add(o.duration)
		}
		err := settings.PauseQueue
		name := queue
		if task != "" {
			err, name = settings.PauseTask, task
		}
		return settled{Done: "paused", Until: p.Until}, err(ctx, s, name, p)
	})
}

func (a *app) resume(cmd *cobra.Command, queues, tasks []string) error {
	return a.changeSettings(cmd, queues, tasks, func(ctx context.Context, s settings.Store, queue, task string) (settled, error) {
		end, name := settings.ResumeQueue, queue
		if task != "" {
			end, name = settings.ResumeTask, task
		}
		found, err := end(ctx, s, name)
		if err == nil && !found {
			return settled{Done: "not paused"}, nil
		}
		return settled{Done: "resumed"}, err
	})
}

func (a *app) setLimit(cmd *cobra.Command, queues, tasks []string, rate string, concurrency int) error {
	if rate == control.RateDefault {
		rate = ""
	}
	return a.changeSettings(cmd, queues, tasks, func(ctx context.Context, s settings.Store, queue, task string) (settled, error) {
		set, name := settings.LimitQueue, queue
		if task != "" {
			set, name = settings.LimitTask, task
		}
		done := "limited"
		if rate == "" && concurrency == 0 {
			done = "not limited"
		}
		return settled{Done: done}, set(ctx, s, name, settings.Limit{Rate: rate, Concurrency: concurrency, By: a.operator()})
	})
}

func notStored(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("%w: --%s is for stored settings; name a queue or a task, without --node, --replies and --collect", errUsage, name)
		}
	}
	return nil
}
