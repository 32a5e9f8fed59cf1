package jobcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/jobs"
)

// turnedOutput is the output of retry, cancel and rm for one job.
type turnedOutput struct {
	ID    jobs.ID    `json:"id"`
	Name  string     `json:"name"`
	Was   jobs.State `json:"was"`
	State jobs.State `json:"state,omitempty"` // "": the job is deleted
}

// turn calls do, which changes the named jobs, and prints the state of each before and after. It
// checks first that all jobs exist.
func (a *app) turn(cmd *cobra.Command, store *cli.JobStore, texts []string, force bool, do func(ctx context.Context, api inspect.API, c inspect.JobChange) (inspect.Change, error)) error {
	ids, err := jobIDs(texts)
	if err != nil {
		return err
	}
	return a.withJobAPI(cmd.Context(), store, func(ctx context.Context, api inspect.API) error {
		c := inspect.JobChange{Force: force}
		out := make([]turnedOutput, len(ids))
		for i, id := range ids {
			j, err := api.GetJob(ctx, int64(id))
			if err != nil {
				return err
			}
			c.IDs = append(c.IDs, j.ID)
			out[i] = turnedOutput{ID: id, Name: j.Name, Was: jobs.State(j.State)}
		}
		if _, err := do(ctx, api, c); err != nil {
			return err
		}
		t := &cli.Table{Head: []string{"ID", "NAME", "WAS", "NOW"}}
		for i := range out {
			now := "gone"
			// the change is made, even if this read fails
			if is, err := api.GetJob(ctx, int64(out[i].ID)); err == nil {
				out[i].State, now = jobs.State(is.State), is.State
			}
			t.Add(out[i].ID, out[i].Name, out[i].Was, now)
		}
		return a.Show(out, t)
	})
}

func (a *app) jobRetryCmd(store *cli.JobStore) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "retry ID...",
		Short: "Let jobs run again",
		Long: "Retry puts jobs back into the queue, all of them or none. FAILED and CANCELLED jobs, and jobs that wait for a\n" +
			"later time, are due now, and their attempts are counted from the start. A job that repeats then continues\n" +
			"after the time of its last run. The command prints the state of each job before and after.\n\n" +
			"A job that runs, awaits an answer or is FINISHED is refused (status 1). With --force it runs again too. The\n" +
			"current run of a job continues beside the new one, but can no longer end the job. If one of the jobs does not\n" +
			"exist, none is changed, and the exit status is 3.",
		Example: "  swarmiji job retry 17 18\n" +
			"  swarmiji job ls --state FAILED -o json | jq '.[].id' | xargs swarmiji job retry",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, texts []string) error {
			return a.turn(cmd, store, texts, force, func(ctx context.Context, api inspect.API, c inspect.JobChange) (inspect.Change, error) {
				return api.RetryJobs(ctx, c)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also retry jobs that run, await an answer or are FINISHED")
	return cmd
}

func (a *app) jobCancelCmd(store *cli.JobStore) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel jobs, so that they do not run",
		Long: "Cancel makes jobs CANCELLED, one after the other, and keeps their records. It prints the state of each job\n" +
			"before and after. A worker that runs such a job is not stopped, but can no longer end the job; an answer\n" +
			"counts as late. swarmiji job retry lets a cancelled job run again.\n\n" +
			"Cancelling stops at the first job that has finished, has failed or has children: the exit status is 1, the\n" +
			"jobs before it stay cancelled, and the error tells their number. If one of the jobs does not exist, none is\n" +
			"changed, and the exit status is 3.",
		Example: "  swarmiji job cancel 17\n" +
			"  swarmiji job cancel 17 18 -o json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, texts []string) error {
			return a.turn(cmd, store, texts, false, func(ctx context.Context, api inspect.API, c inspect.JobChange) (inspect.Change, error) {
				return api.CancelJobs(ctx, c)
			})
		},
	}
}

func (a *app) jobRemoveCmd(store *cli.JobStore) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "rm ID...",
		Short: "Delete jobs",
		Long: "Rm deletes jobs for good, one after the other, and prints the state that each one had. It stops at the first\n" +
			"job that runs, is PAUSED or has children: the exit status is 1, the jobs before it stay deleted, and the error\n" +
			"tells their number.\n\n" +
			"With --force such a job and its children are cancelled and deleted too, the children first. Workers that run\n" +
			"them are not stopped, but can no longer end them. If one of the jobs does not exist, none is changed, and the\n" +
			"exit status is 3.",
		Example: "  swarmiji job rm 17\n" +
			"  swarmiji job rm 17 18 --force -o json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, texts []string) error {
			return a.turn(cmd, store, texts, force, func(ctx context.Context, api inspect.API, c inspect.JobChange) (inspect.Change, error) {
				return api.RemoveJobs(ctx, c)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also delete jobs that run, are PAUSED or have children, and these children")
	return cmd
}
