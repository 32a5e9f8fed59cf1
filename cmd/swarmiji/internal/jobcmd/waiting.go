package jobcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// waitingOutput is the output for a task that waits for an answer.
type waitingOutput struct {
	Task     task.ID   `json:"task"`
	Name     string    `json:"name"`
	Key      string    `json:"key"`
	Deadline time.Time `json:"deadline"`
}

func (a *app) jobWaitingCmd(store *cli.JobStore) *cobra.Command {
	limit, after := 0, ""
	cmd := &cobra.Command{
		Use:   "waiting QUEUE",
		Short: "List tasks that wait for an answer from outside",
		Long: "Waiting prints the tasks of a broker's queue that wait for an answer from outside, in the order of their ids:\n" +
			"id, name, the key for swarmiji job complete, and the end of the wait. It asks the job store (--store), not the\n" +
			"broker, and changes nothing. No such tasks are not an error.\n\n" +
			"It prints at most --limit tasks. If there are more, a line on the standard error says with which --after to\n" +
			"continue.",
		Example: "  swarmiji job waiting mail\n" +
			"  swarmiji job waiting mail --limit 1000 -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxList {
				return fmt.Errorf("%w: --limit is %d, want 1 to %d", cli.ErrUsage, limit, maxList)
			}
			return a.jobWaiting(cmd.Context(), store, args[0], task.ID(after), limit)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVarP(&limit, "limit", "n", 100, fmt.Sprintf("maximum number of tasks, 1 to %d", maxList))
	f.StringVar(&after, "after", "", "only tasks with a higher id than this `id`")
	return cmd
}

func (a *app) jobWaiting(ctx context.Context, store *cli.JobStore, queue string, after task.ID, limit int) error {
	return a.WithJobs(ctx, store, false, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
		var all []waitingOutput
		more := false
		err := s.Store().View(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			found, err := tx.AwaitingDeferrals(ctx, queue, after, limit+1)
			if more = len(found) > limit; more {
				found = found[:limit]
			}
			all = make([]waitingOutput, len(found))
			for i := range found {
				d := &found[i]
				all[i] = waitingOutput{Task: d.Task, Name: d.Name, Key: d.Key, Deadline: utc(d.Deadline)}
			}
			return err
		})
		if err != nil {
			return err
		}
		t := &cli.Table{Head: []string{"TASK", "NAME", "KEY", "DEADLINE"}}
		for _, w := range all {
			t.Add(string(w.Task), w.Name, cli.Cut(w.Key), w.Deadline)
		}
		if err := a.Show(all, t); err != nil || !more {
			return err
		}
		_, err = fmt.Fprintf(a.Stderr, "there are more: --after %s\n", cli.Visible(string(all[len(all)-1].Task)))
		return err
	})
}
