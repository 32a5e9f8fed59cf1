package deadcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// requeueOutput is the output of dead requeue.
type requeueOutput struct {
	Queue string `json:"queue"`
	cli.Requeued
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
			f, err := which.some(args[0])
			if err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), args[0], func(ctx context.Context, api inspect.API) error {
				if bulk.dryRun {
					return a.summary(ctx, api, &f)
				}
				if err := bulk.allow(ctx, api, &f); err != nil {
					return err
				}
				r, err := inParts(&f, inspect.DeadChange{DeadFilter: f.DeadFilter}, func(c inspect.DeadChange) (inspect.Change, error) { return api.RequeueDead(ctx, c) })
				if none := noneOf(&f, r.Done+r.Already+r.Refused); err == nil && none != nil {
					return none
				}
				out, t, refused := cli.RequeuedOf(&r, "QUEUE", args[0])
				return errors.Join(a.Show(requeueOutput{args[0], out}, t), refused, err)
			})
		},
	}
	which.flags(cmd, 0)
	bulk.flags(cmd, "confirm more than 100 letters")
	return cmd
}

func (a *app) deadDropCmd() *cobra.Command {
	var which deadFilter
	var bulk bulkFlags
	cmd := &cobra.Command{
		Use:   "drop QUEUE",
		Short: "Delete dead letters",
		Long: "Drop deletes dead letters for good and prints their number, which may be 0. It needs --all or a flag that\n" +
			"selects letters. It also needs --yes, or at a terminal the name of the queue, typed. Otherwise it deletes\n" +
			"nothing, with status 2. --dry-run counts the letters by name and by reason instead. The exit status is 3 if\n" +
			"no letter has an id of --id. --timeout limits only the " +
			"connecting.",
		Example: "  swarmiji dead drop reports --older-than 720h --dry-run\n" +
			"  swarmiji dead drop reports --id report-2026-10 --yes\n" +
			"  swarmiji dead drop reports --older-than 720h --yes\n" +
			"  swarmiji dead drop reports --all --yes -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := which.some(args[0])
			if err == nil {
				err = a.Confirmed(cmd.Context(), bulk.yes, bulk.dryRun, args[0])
			}
			if err != nil {
				return err
			}
			return a.withAPI(cmd.Context(), args[0], func(ctx context.Context, api inspect.API) error {
				if bulk.dryRun {
					return a.summary(ctx, api, &f)
				}
				c, err := inParts(&f, inspect.DeadChange{DeadFilter: f.DeadFilter, Confirm: args[0]}, func(c inspect.DeadChange) (inspect.Change, error) { return api.DropDead(ctx, c) })
				if err == nil {
					err = noneOf(&f, c.Done)
				}
				return a.changed(args[0], "dropped", c.Done, err)
			})
		},
	}
	which.flags(cmd, 0)
	bulk.flags(cmd, "confirm; without it nothing is deleted")
	return cmd
}

// noneOf returns [broker.ErrNotFound] if f names ids and n, the number of letters that match, is 0.
func noneOf(f *selection, n int) error {
	if f.IDs == nil || n > 0 {
		return nil
	}
	return fmt.Errorf("%w: no dead letter of queue %q has an id of --id", broker.ErrNotFound, f.Queue)
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
