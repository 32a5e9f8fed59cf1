package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// resumeCmd makes a command that resumes. name is the whole command, for the examples.
func (a *app) resumeCmd(name string) *cobra.Command {
	var t cli.Target
	var tasks []string
	cmd := &cobra.Command{
		Use:   "resume [QUEUE...]",
		Short: "Let paused consumers take tasks again",
		Long: "Resume ends the pause of the named queues for all consumers, whether it is stored or was a command to\n" +
			"consumers. With --task it ends the pause of the tasks with that name: their messages come back to their queues.\n" +
			"It also resets the breakers. It prints a line for each name; \"not set\" means that the tasks were not paused.\n\n" +
			"Without names, or with --node, --replies or --collect, it is a command to the consumers that run now. It ends\n" +
			"only the pauses that such a command has made, and prints a line for each consumer that has done so.\n\n" +
			"Exit status: 1 if a consumer reports an error, 4 if nothing is stored for a queue and no consumer answers.",
		Example: "  " + name + " reports\n" +
			"  " + name + " --task mail.send",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0 || len(tasks) > 0) && !toLiving(cmd) {
				return a.resume(cmd, args, tasks)
			}
			if err := notStored(cmd, "task"); err != nil {
				return err
			}
			t.Queues = args
			return a.Steer(cmd, &t, func(ctx context.Context, api inspect.API) (inspect.Change, error) {
				return api.ResumeWorkers(ctx, t.Target())
			})
		},
	}
	cmd.Flags().StringSliceVar(&tasks, "task", nil, "`name` of the tasks to resume; may be repeated")
	t.Flags(cmd, false)
	return cmd
}
