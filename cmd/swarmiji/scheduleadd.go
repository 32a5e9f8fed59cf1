package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/schedule"
)

// addOptions holds the flags of schedule add.
type addOptions struct {
	when           whenOptions
	nonce, misfire string
}

func (a *app) scheduleAddCmd(store *storeOptions) *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use:   "add PHRASE TASK [JSON|-]",
		Short: "Have a task run at times of its own",
		Long: "Add has a task with JSON arguments run when the phrase says, prints the id of the entry, and how it was understood. A list\n" +
			"is the list of the arguments, anything else the only one. --cron, --cron5 or --repeat stand in the place of the phrase. The\n" +
			"same task with the same arguments at the same times is one entry, however often it is added, unless --nonce sets them\n" +
			"apart. Arguments are kept in the open. \"-\" reads them from the standard input.",
		Example: "  swarmiji schedule add \"at 7pm tomorrow\" cache.clear\n" +
			"  swarmiji schedule add --cron \"* * * 1-5 9 0 0\" report.make '{\"month\": \"last\"}' --misfire skip",
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error { return a.scheduleAdd(cmd.Context(), store, args, &o) },
	}
	o.when.flags(cmd)
	cmd.Flags().StringVar(&o.nonce, "nonce", "", "`text` that sets entries apart which are otherwise equal")
	cmd.Flags().StringVar(&o.misfire, "misfire", "once", "what becomes of runs that nobody was there for: `policy` once, skip, or all=N for the newest N of them")
	return cmd
}

func (a *app) scheduleAdd(ctx context.Context, store *storeOptions, args []string, o *addOptions) error {
	phrase := ""
	if o.when.given() == 0 {
		phrase, args = args[0], args[1:]
	}
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("%w: give a phrase, or one of --cron, --cron5 and --repeat, and a task, and its arguments as one JSON text", errUsage)
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
	return a.withSchedule(ctx, store, loc, func(ctx context.Context, s *schedule.Schedule) error {
		added, err := s.Add(ctx, when, call, schedule.WithNonce(o.nonce), schedule.WithMisfire(misfire))
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
	return "", fmt.Errorf("%w: --misfire is once, skip, or all=N with 1 to 1000 for N", errUsage)
}
