package schedulecmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/schedule"
)

// addOptions holds the flags of schedule add.
type addOptions struct {
	when                 whenOptions
	name, nonce, misfire string
}

func (a *app) scheduleAddCmd(store *storeOptions) *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use:   "add PHRASE TASK [JSON|-]",
		Short: "Add an entry that runs a task at given times",
		Long: "Add adds an entry that runs TASK at the times of PHRASE, such as \"every weekday at 9am\" or \"at 7pm tomorrow\".\n" +
			"--cron, --cron5 or --repeat replace the phrase. A JSON list holds the arguments of the task; any other JSON\n" +
			"value is its only argument. \"-\" reads the JSON from the standard input; without JSON the task has no\n" +
			"arguments. Arguments are stored unencrypted.\n\n" +
			"The same task with the same arguments and times is the same entry. If it exists already, nothing changes;\n" +
			"--nonce makes a second one. With --name the entry of this name is changed: it keeps its state, last runs and\n" +
			"pause, and its old times end.\n\n" +
			"The command prints the id of the entry, then how the times were understood, and a third line if the entry\n" +
			"existed already. The exit status is 0 in both cases, and 2 if the times are not understood. Check times first\n" +
			"with swarmiji schedule next.",
		Example: "  swarmiji schedule add \"at 7pm tomorrow\" cache.clear\n" +
			"  swarmiji schedule add --cron \"* * * 1-5 9 0 0\" report.make '{\"month\": \"last\"}' --misfire skip",
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error { return a.scheduleAdd(cmd.Context(), store, args, &o) },
	}
	o.when.flags(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "`name` of the entry; an entry of this name is changed")
	cmd.Flags().StringVar(&o.nonce, "nonce", "", "`text` that makes an entry differ from one that is otherwise equal")
	cmd.Flags().StringVar(&o.misfire, "misfire", "once", "`policy` for runs that were missed because no listener ran: once (run the oldest one), skip (leave out runs that are over a minute late), or all=N (run the newest N)")
	return cmd
}

func (a *app) scheduleAdd(ctx context.Context, store *storeOptions, args []string, o *addOptions) error {
	phrase := ""
	if o.when.given() == 0 {
		phrase, args = args[0], args[1:]
	}
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("%w: give a phrase, or one of --cron, --cron5 and --repeat, and a task, and its arguments as one JSON text", cli.ErrUsage)
	}
	misfire, err := misfire(o.misfire)
	if err != nil {
		return err
	}
	p, err := o.when.understand(phrase, time.Now()) // refuse wrong flags before the store is asked
	if err != nil {
		return err
	}
	call, err := a.scheduled(args[0], args[1:])
	if err != nil {
		return err
	}
	loc, err := o.when.location()
	if err != nil {
		return err
	}
	when := o.when.when(phrase, &p)
	return a.withSchedule(ctx, store, true, loc, func(ctx context.Context, s *schedule.Schedule) error {
		added, err := s.Add(ctx, when, call, schedule.WithName(o.name), schedule.WithNonce(o.nonce), schedule.WithMisfire(misfire))
		a.Audit(ctx, inspect.Change{Do: inspect.DoAddSchedule, Target: cmp.Or(o.name, args[0]), Done: cli.OneIf(err)},
			map[string]any{"entry": added.ID, "task": args[0], "new": added.New, "changed": added.Changed}, err)
		if err != nil {
			return err
		}
		return a.showAdded(&added)
	})
}

// misfire parses the policy for missed runs.
func misfire(text string) (schedule.Misfire, error) {
	switch text {
	case "once":
		return schedule.MisfireOnce, nil
	case "skip":
		return schedule.MisfireSkip, nil
	}
	if count, ok := strings.CutPrefix(text, "all="); ok {
		if n, err := strconv.Atoi(count); err == nil && n >= 1 && n <= 1000 {
			return schedule.MisfireAll(n), nil
		}
	}
	return "", fmt.Errorf("%w: --misfire is once, skip, or all=N with 1 to 1000 for N", cli.ErrUsage)
}
