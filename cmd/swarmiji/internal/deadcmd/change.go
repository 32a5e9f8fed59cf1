package deadcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
)

// requeueOutput is the output of dead requeue.
type requeueOutput struct {
	Queue    string            `json:"queue"`
	Requeued int               `json:"requeued"`
	Already  int               `json:"already"`
	Refused  int               `json:"refused"`
	Unfenced int               `json:"unfenced"`
	Problems []inspect.Problem `json:"problems,omitempty"`
}

func (a *app) deadRequeueCmd() *cobra.Command {
	var which deadFilter
	var bulk bulkFlags
	cmd := &cobra.Command{
		Use:   "requeue QUEUE",
		Short: "Run dead letters again",
		Long: "Requeue puts dead letters back into their queue and prints their number. It needs --all or a flag that selects\n" +
			"letters. --dry-run counts them by name and by reason and changes nothing. More than 100 letters need --yes,\n" +
			"otherwise nothing is changed, with status 2.\n\n" +
			"The retries of a requeued task start from zero, it does not expire, and steps that were skipped\n" +
			"because it failed run. Its record may change to succeeded. swarmiji result ID --wait waits for the end of a\n" +
			"task.\n\n" +
			"Some letters are refused and stay where they are: members of a group that has counted them, tasks with\n" +
			"conditions, and tasks that have succeeded or were revoked. The reasons are printed, and the exit status is 1.\n" +
			"It is 3 if no letter has an id of --id.\n\n" +
			"It is safe to repeat the command, also after an interruption. --timeout limits only the connecting.",
		Example: "  swarmiji dead requeue reports --error timeout --dry-run\n" +
			"  swarmiji dead requeue reports --all --yes\n" +
			"  swarmiji dead requeue reports --id report-2026-10\n" +
			"  swarmiji dead requeue reports --error 'connection refused' --younger-than 2h --limit 1000 --yes",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := which.some()
			if err != nil {
				return err
			}
			return a.DeadChange(cmd, args[0], func(ctx context.Context, l *deadletter.Letters, api inspect.API) error {
				if bulk.dryRun {
					return a.summary(ctx, l, args[0], f)
				}
				if err := bulk.allow(ctx, l, args[0], f); err != nil {
					return err
				}
				r, err := inParts(&f, deadChangeOf(args[0], &f), func(c inspect.DeadChange) (inspect.Change, error) { return api.RequeueDead(ctx, c) })
				if err == nil && f.IDs != nil && r.Done+r.Already+r.Refused == 0 {
					return fmt.Errorf("%w: no dead letter of queue %q has an id of --id", broker.ErrNotFound, args[0])
				}
				return errors.Join(a.requeued(args[0], &r), err)
			})
		},
	}
	which.flags(cmd, 0)
	bulk.flags(cmd, "confirm more than 100 letters")
	return cmd
}

// requeued prints the result of a requeue. It returns an error if letters were refused.
func (a *app) requeued(queue string, r *inspect.Change) error {
	out := requeueOutput{Queue: queue, Requeued: r.Done, Already: r.Already, Refused: r.Refused, Unfenced: r.Unfenced, Problems: r.Problems}
	t := &cli.Table{Head: []string{"QUEUE", "DEAD LETTERS"}}
	t.Add(queue, fmt.Sprintf("%d requeued", r.Done))
	if r.Unfenced > 0 {
		t.Add("", fmt.Sprintf("%d of these without a record: what their old runs still write is not refused", r.Unfenced))
	}
	if r.Already > 0 {
		t.Add("", fmt.Sprintf("%d had been requeued already", r.Already))
	}
	for _, p := range r.Problems {
		t.Add(p.ID, "refused: "+p.Reason)
	}
	if err := a.Show(out, t); err != nil || r.Refused == 0 {
		return err
	}
	return fmt.Errorf("%d dead letters were refused", r.Refused)
}

func (a *app) deadDropCmd() *cobra.Command {
	var which deadFilter
	var bulk bulkFlags
	cmd := &cobra.Command{
		Use:   "drop QUEUE",
		Short: "Delete dead letters",
		Long: "Drop deletes dead letters for good and prints their number, which may be 0. It needs --all or a flag that\n" +
			"selects letters. It also needs --yes, or at a terminal the name of the queue, typed. Otherwise it deletes\n" +
			"nothing, with status 2. --dry-run counts the letters by name and by reason instead. --timeout limits only the\n" +
			"connecting.",
		Example: "  swarmiji dead drop reports --older-than 720h --dry-run\n" +
			"  swarmiji dead drop reports --id report-2026-10 --yes\n" +
			"  swarmiji dead drop reports --older-than 720h --yes\n" +
			"  swarmiji dead drop reports --all --yes -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := which.some()
			switch {
			case err != nil:
				return err
			case bulk.dryRun:
				return a.DeadLetters(cmd, args[0], func(ctx context.Context, l *deadletter.Letters) error {
					return a.summary(ctx, l, args[0], f)
				})
			}
			return a.drop(cmd, args[0], f, bulk.yes, "dropped")
		},
	}
	which.flags(cmd, 0)
	bulk.flags(cmd, "confirm; without it nothing is deleted")
	return cmd
}

// deadPurgeCmd is the old name of drop --all.
func (a *app) deadPurgeCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:    "purge QUEUE",
		Short:  "Remove the dead letters of a queue: drop --all",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.drop(cmd, args[0], deadletter.Filter{}, yes, "purged")
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (a *app) drop(cmd *cobra.Command, queue string, f deadletter.Filter, yes bool, what string) error {
	if err := a.Confirmed(cmd.Context(), yes, false, queue); err != nil {
		return err
	}
	change := deadChangeOf(queue, &f)
	change.Confirm = queue
	return a.DeadChange(cmd, queue, func(ctx context.Context, _ *deadletter.Letters, api inspect.API) error {
		c, err := inParts(&f, change, func(c inspect.DeadChange) (inspect.Change, error) { return api.DropDead(ctx, c) })
		return a.changed(queue, what, c.Done, err)
	})
}

// changed prints the number of changed dead letters.
func (a *app) changed(queue, what string, n int, err error) error {
	if err != nil {
		return err
	}
	t := &cli.Table{Head: []string{"QUEUE", "DEAD LETTERS"}}
	t.Add(queue, fmt.Sprintf("%d %s", n, what))
	return a.Show(map[string]any{"queue": queue, what: n}, t)
}
