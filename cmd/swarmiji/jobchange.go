package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/jobs"
)

// turnedOutput is the output of retry, cancel and rm for one job.
type turnedOutput struct {
	ID    jobs.ID    `json:"id"`
	Name  string     `json:"name"`
	Was   jobs.State `json:"was"`
	State jobs.State `json:"state,omitempty"` // "": the job is deleted
}

// turn calls do for the named jobs and prints the result for each. Before the first change it
// checks that all jobs exist.
func (a *app) turn(cmd *cobra.Command, store *jobStore, texts []string, do func(ctx context.Context, s *jobs.Service, all []jobs.Row) error) error {
	ids, err := jobIDs(texts)
	if err != nil {
		return err
	}
	return a.withJobs(cmd.Context(), store, false, jobs.Config{}, func(ctx context.Context, s *jobs.Service) error {
		all, err := those(ctx, s, ids)
		if err != nil {
			return err
		}
		if err := do(ctx, s, all); err != nil {
			return err
		}
		out := make([]turnedOutput, len(all))
		t := &table{head: []string{"ID", "NAME", "WAS", "NOW"}}
		for i := range all {
			j := &all[i]
			out[i] = turnedOutput{ID: j.ID, Name: j.Name, Was: j.State}
			now := "gone"
			if is, err := s.Row(ctx, j.ID); err == nil { // the change is made, even if this read fails
				out[i].State, now = is.State, string(is.State)
			}
			t.add(j.ID, j.Name, j.State, now)
		}
		return a.show(out, t)
	})
}

func (a *app) jobRetryCmd(store *jobStore) *cobra.Command {
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
			return a.turn(cmd, store, texts, func(ctx context.Context, s *jobs.Service, all []jobs.Row) error {
				ids := make([]jobs.ID, len(all))
				for i := range all {
					switch ids[i] = all[i].ID; {
					case force:
					case all[i].State.Runs():
						return fmt.Errorf("job %d: %w; --force lets it run again", all[i].ID, jobs.ErrIsRunning)
					case all[i].State == jobs.Finished:
						return fmt.Errorf("job %d: %w: it is FINISHED; --force lets it run again", all[i].ID, jobs.ErrState)
					}
				}
				return s.Requeue(ctx, ids, "")
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also retry jobs that run, await an answer or are FINISHED")
	return cmd
}

// each calls do for one job after the other. It stops at the first error. The error names the job
// and the number of finished ones.
func each(all []jobs.Row, do func(j *jobs.Row) error) error {
	for i := range all {
		if err := do(&all[i]); err != nil {
			return fmt.Errorf("%d of %d are done; job %d: %w", i, len(all), all[i].ID, err)
		}
	}
	return nil
}

func (a *app) jobCancelCmd(store *jobStore) *cobra.Command {
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
			return a.turn(cmd, store, texts, func(ctx context.Context, s *jobs.Service, all []jobs.Row) error {
				return each(all, func(j *jobs.Row) error { return s.Withdraw(ctx, j.ID) })
			})
		},
	}
}

func (a *app) jobRemoveCmd(store *jobStore) *cobra.Command {
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
			return a.turn(cmd, store, texts, func(ctx context.Context, s *jobs.Service, all []jobs.Row) error {
				return each(all, func(j *jobs.Row) error {
					if force {
						return removeAll(ctx, s, j)
					}
					return s.Delete(ctx, j.ID)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also delete jobs that run, are PAUSED or have children, and these children")
	return cmd
}

// removeAll deletes a job, which may be running, and its children first.
func removeAll(ctx context.Context, s *jobs.Service, j *jobs.Row) error {
	for j.HasChildren {
		children, err := s.Rows(ctx, jobs.Filter{Parent: j.ID, Limit: jobPage})
		if err != nil {
			return err
		}
		for i := range children {
			if err := removeOne(ctx, s, children[i].ID); err != nil {
				return err
			}
		}
		if len(children) < jobPage {
			break
		}
	}
	return removeOne(ctx, s, j.ID)
}

// removeOne withdraws a job that has not ended, and deletes it.
func removeOne(ctx context.Context, s *jobs.Service, id jobs.ID) error {
	err := s.Withdraw(ctx, id)
	if err == nil || errors.Is(err, jobs.ErrOver) {
		err = s.Delete(ctx, id)
	}
	if errors.Is(err, jobs.ErrNotFound) { // the job has ended in between
		return nil
	}
	return err
}
