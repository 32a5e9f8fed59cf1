package jobcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
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

func (a *app) jobCompleteCmd(store *cli.JobStore) *cobra.Command {
	var o completeOptions
	cmd := &cobra.Command{
		Use:   "complete NAME KEY [JSON|@FILE|-]",
		Short: "Answer a job or task that waits for an answer from outside",
		Long: "Complete sends an answer to the job or task with this NAME and KEY. The answer is a result, which is any JSON\n" +
			"value and null by default, or with --reject a refusal. \"@FILE\" reads the result from a file, \"-\" from the\n" +
			"standard input. The command prints one of these receipts, and the job or task:\n" +
			"  accepted   the answer is stored, and the job or task continues (status 0)\n" +
			"  early      no job or task waits for it yet; the answer is kept for --early-for (status 3)\n" +
			"  late       the job or task has ended already (status 6)\n" +
			"  duplicate  there is an answer already, which stays (status 7)",
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
	f.StringVar(&o.reject, "reject", "", "refuse instead of giving a result; `text` is the reason")
	f.DurationVar(&o.early, "early-for", jobs.DefaultEarlyFor, "how long an early answer is kept")
	f.DurationVar(&o.keep, "keep-for", jobs.DefaultRetention, "how long the job is kept after its end, if the answer ends it; use the value of its runner")
	f.BoolVar(&o.snap, "snap", false, "if the answer ends a run of a repeating job: as bedrock --snap")
	f.BoolVar(&o.reanchor, "reanchor", false, "if the answer ends a run of a repeating job: as bedrock --reanchor")
	return cmd
}

// receiptOutput is the output of job complete.
type receiptOutput struct {
	Receipt jobs.ReceiptKind `json:"receipt"`
	Job     jobs.ID          `json:"job,omitempty"` // 0: no job is known
	// the task that waits for the answer; "": no task is known
	Task task.ID `json:"task,omitempty"`
}

func (a *app) jobComplete(ctx context.Context, store *cli.JobStore, args []string, o *completeOptions) error {
	switch {
	case o.rejects && len(args) > 2:
		return fmt.Errorf("%w: give a result or --reject, not both", cli.ErrUsage)
	case o.rejects && o.reject == "":
		return fmt.Errorf("%w: --reject needs a reason", cli.ErrUsage)
	case o.keep <= 0 || o.early <= 0:
		return fmt.Errorf("%w: --keep-for and --early-for are above 0", cli.ErrUsage)
	}
	result, err := a.Document(args[2:], jobs.MaxData)
	if err != nil {
		return err
	}
	c := jobs.Config{Retention: o.keep, EarlyFor: o.early, Repeats: when.RepeatConfig{Snap: o.snap}, Reanchor: o.reanchor}
	return a.WithJobs(ctx, store, false, c, func(ctx context.Context, s *jobs.Service) error {
		receipt, err := answer(ctx, s, args[0], args[1], result, o)
		a.Audit(ctx, inspect.Change{Do: inspect.DoAnswerTask, Target: args[0] + " " + args[1], Done: cli.OneIf(errors.Join(err, refused(receipt, o)))},
			map[string]any{"receipt": receipt.Kind, "rejected": o.rejects}, err)
		if err != nil {
			return err
		}
		out := receiptOutput{Receipt: receipt.Kind, Job: receipt.Job, Task: receipt.Task}
		t := &cli.Table{Head: []string{"RECEIPT", "JOB", "TASK"}}
		job := ""
		if out.Job != 0 {
			job = fmt.Sprint(out.Job)
		}
		t.Add(string(out.Receipt), job, string(out.Task))
		return errors.Join(a.Show(out, t), refused(receipt, o))
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
		return "task " + cli.Visible(string(r.Task))
	}
	return fmt.Sprint("job ", r.Job)
}

// refused returns the reason why an answer was not accepted, and nil if it was accepted.
func refused(r jobs.Receipt, o *completeOptions) error {
	switch r.Kind {
	case jobs.Accepted:
		return nil
	case jobs.Late:
		return fmt.Errorf("%w: %s is over", cli.ErrLate, awaiter(r))
	case jobs.Duplicate:
		if r.Job == 0 && r.Task == "" {
			return fmt.Errorf("%w: an early answer for this is kept already", cli.ErrDuplicate)
		}
		return fmt.Errorf("%w: %s has an answer", cli.ErrDuplicate, awaiter(r))
	}
	if r.Job != 0 {
		return fmt.Errorf("%w: job %d has not begun; its answer is kept for %v", cli.ErrNotFound, r.Job, o.early)
	}
	return fmt.Errorf("%w: no job awaits this; it is kept for %v", cli.ErrNotFound, o.early)
}
