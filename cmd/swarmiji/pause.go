package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// pauseCmd makes a command that pauses. name is the whole command, for the examples.
func (a *app) pauseCmd(name string) *cobra.Command {
	var t cli.Target
	var o pauseOptions
	cmd := &cobra.Command{
		Use:   "pause [QUEUE...]",
		Short: "Stop consumers from taking new tasks",
		Long: "Pause stops all consumers from taking new tasks from the named queues, also consumers that start later, until\n" +
			"swarmiji resume or for the time of --for. With --task it pauses the tasks with that name in all queues: their\n" +
			"messages wait in queues of their own, and no attempt is used. Running tasks continue; fetched ones go back to\n" +
			"the queue. The pause is stored on the server of the broker, and the command prints a line for each.\n\n" +
			"Without names, or with --node, --replies or --collect, it is a command to the consumers that run now. It lasts\n" +
			"until swarmiji resume or until the consumer restarts; the command prints a line for each consumer that has\n" +
			"paused. Exit status: 1 if a consumer reports an error, 4 if no consumer answers.",
		Example: "  " + name + " reports --for 1h --reason 'the printer is broken'\n" +
			"  " + name + " --task mail.send\n" +
			"  " + name + " --node host-1234-abcdef",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0 || len(o.tasks) > 0) && !toLiving(cmd) {
				return a.pause(cmd, args, &o)
			}
			if err := notStored(cmd, "task", "for", "reason"); err != nil {
				return err
			}
			a.onlyLiving()
			t.Queues = args
			return a.Steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.PauseWorkers(ctx, t.Target())
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.tasks, "task", nil, "`name` of the tasks to pause; may be repeated")
	f.DurationVar(&o.duration, "for", 0, "how long the pause lasts, such as 30m; default: until swarmiji resume")
	f.StringVar(&o.reason, "reason", "", "`text` for other operators and the audit log")
	t.Flags(cmd, false)
	return cmd
}
