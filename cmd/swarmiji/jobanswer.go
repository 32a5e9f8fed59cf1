package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
	"github.com/swarmiji/swarmiji/when"
)

// completeOptions holds the flags of job complete.
type completeOptions struct {
	reject         string
	rejects        bool
	keep, early    time.Duration
	snap, reanchor bool
}

func (a *app) jobCompleteCmd(store *jobStore) *cobra.Command {
	var o completeOptions
	cmd := &cobra.Command{
		Use:   "complete NAME KEY [JSON|@FILE|-]",
		Short: "Give a job the answer that it awaits",
		Long: "Complete answers the job of this name and this key, with a result that is any JSON value, null if there is none, or with a\n" +
			"refusal, and prints what became of the answer: accepted (status 0); early, there is no such job that has begun, so that the\n" +
			"answer is kept for --early-for (status 3); late, the job is over (status 6); or duplicate, it has an answer (status 7).",
		Example: "  swarmiji job complete print/order order-4711 '{\"pages\": 12}'\n" +
			"  swarmiji job complete print/order order-4712 --reject 'no paper'",
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.rejects = cmd.Flags().Changed("reject")
			return a.jobComplete(cmd.Context(), store, args, &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.reject, "reject", "", "the answer is a refusal, of which this `text` is the reason")
	f.DurationVar(&o.early, "early-for", jobs.DefaultEarlyFor, "how long an answer is kept that is early")
	f.DurationVar(&o.keep, "keep-for", jobs.DefaultRetention, "how long the job is kept if the answer ends it, as its runner has it")
	f.BoolVar(&o.snap, "snap", false, "read the repeat of a job that the answer ends as swarmiji bedrock --snap does")
	f.BoolVar(&o.reanchor, "reanchor", false, "likewise, as --reanchor does")
	return cmd
}

// receiptOutput is the output of job complete.
type receiptOutput struct {
	Receipt jobs.ReceiptKind `json:"receipt"`
	Job     jobs.ID          `json:"job,omitempty"` // 0: no job is known
	// the task that waits for the answer; "": no task is known
	Task task.ID `json:"task,omitempty"`
}

func (a *app) jobComplete(ctx context.Context, store *jobStore, args []string, o *completeOptions) error {
	switch {
	case o.rejects && len(args) > 2:
		return fmt.Errorf("%w: give a result or --reject, not both", errUsage)
	case o.rejects && o.reject == "":
		return fmt.Errorf("%w: --reject needs a reason", errUsage)
	case o.keep <= 0 || o.early <= 0:
		return fmt.Errorf("%w: --keep-for and --early-for are above 0", errUsage)
	}
	result, err := a.document(args[2:], jobs.MaxData)
	if err != nil {
		return err
	}
	c := jobs.Config{Retention: o.keep, EarlyFor: o.early, Repeats: when.RepeatConfig{Snap: o.snap}, Reanchor: o.reanchor}
	return a.withJobs(ctx, store, false, c, func(ctx context.Context, s *jobs.Service) error {
		receipt, err := answer(ctx, s, args[0], args[1], result, o)
		if err != nil {
			return err
		}
		out := receiptOutput{Receipt: receipt.Kind, Job: receipt.Job, Task: receipt.Task}
		t := &table{head: []string{"RECEIPT", "JOB", "TASK"}}
		job := ""
		if out.Job != 0 {
			job = fmt.Sprint(out.Job)
		}
		t.add(string(out.Receipt), job, string(out.Task))
		return errors.Join(a.show(out, t), refused(receipt, o))
	})
}

func answer(ctx context.Context, s *jobs.Service, name, key string, result []byte, o *completeOptions) (jobs.Receipt, error) {
	if o.rejects {
		return s.Reject(ctx, name, key, errors.New(o.reject))
	}
	if result == nil {
		return s.Complete(ctx, name, key, nil)
	}
	return s.Complete(ctx, name, key, json.RawMessage(result))
}

// awaiter returns the job or the task of an answer as text.
func awaiter(r jobs.Receipt) string {
	if r.Task != "" {
		return "task " + visible(string(r.Task))
	}
	return fmt.Sprint("job ", r.Job)
}

// refused returns the reason why an answer was not accepted, and nil if it was accepted.
func refused(r jobs.Receipt, o *completeOptions) error {
	switch r.Kind {
	case jobs.Accepted:
		return nil
	case jobs.Late:
		return fmt.Errorf("%w: %s is over", errLate, awaiter(r))
	case jobs.Duplicate:
		if r.Job == 0 && r.Task == "" {
			return fmt.Errorf("%w: an early answer for this is kept already", errDuplicate)
		}
		return fmt.Errorf("%w: %s has an answer", errDuplicate, awaiter(r))
	}
	if r.Job != 0 {
		return fmt.Errorf("%w: job %d has not begun; its answer is kept for %v", errNotFound, r.Job, o.early)
	}
	return fmt.Errorf("%w: no job awaits this; it is kept for %v", errNotFound, o.early)
}
