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
		Short: "Have jobs run again",
		Long: "Retry puts jobs back into the queue, all of them or none: those that have FAILED or were CANCELLED, and those that wait for a\n" +
			"later time, are due now, with their first attempt. One that runs or awaits an answer is refused unless --force is given: what\n" +
			"runs it goes on, beside the next run, and can end it no more.",
		Example: "  swarmiji job retry 17 18\n" +
			"  swarmiji job ls --state FAILED -o json | jq '.[].id' | xargs swarmiji job retry",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, texts []string) error {
			return a.turn(cmd, store, texts, func(ctx context.Context, s *jobs.Service, all []jobs.Row) error {
				ids := make([]jobs.ID, len(all))
				for i := range all {
					if ids[i] = all[i].ID; all[i].State.Runs() && !force {
						return fmt.Errorf("job %d: %w; --force has it run again", all[i].ID, jobs.ErrIsRunning)
					}
				}
				return s.Requeue(ctx, ids, "")
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also jobs that run")
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
		Short: "Keep jobs from running",
		Long: "Cancel makes jobs CANCELLED, one after the other, and keeps them. A job that runs or awaits an answer loses its\n" +
			"attempt: its runner can no longer end it, and an answer is late. An ended job and a job with children are refused. job retry\n" +
			"makes them run after all.",
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
		Long: "Rm deletes jobs, one after the other. One that runs, is PAUSED or has children left is refused, unless --force is given: it and\n" +
			"its children are then cancelled and deleted, the children first. What runs them goes on, and can end them no more.",
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
	cmd.Flags().BoolVar(&force, "force", false, "also jobs that run, and those that have children, with these")
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
