package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/deadcmd"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/helptext"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/jobcmd"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/schedulecmd"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/servecmd"
	_ "github.com/swarmiji/swarmiji/open/all"
)

// app is the program, with its commands as methods. Whole subjects have packages of their own.
type app struct{ *cli.App }

// run runs the program and returns the exit status.
func run(ctx context.Context, args []string, s cli.Surroundings) int {
	a := &app{&cli.App{Surroundings: s}}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.Begun && !errors.Is(err, cli.ErrUsage) {
		err = fmt.Errorf("%w: %w", cli.ErrUsage, err)
		if cmd.HasParent() {
			err = fmt.Errorf("%w; write %s", err, cmd.UseLine())
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(s.Stderr, "swarmiji:", a.Plain(err))
	}
	switch {
	case errors.Is(err, cli.ErrUsage):
		_, _ = fmt.Fprintln(s.Stderr, "see "+cmd.CommandPath()+" --help")
	case errors.Is(err, broker.ErrNoQueue):
		_, _ = fmt.Fprintln(s.Stderr, "see swarmiji queues for the names that consumers serve; --namespace keeps programs apart")
	}
	return cli.Status(err)
}

// root makes the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "swarmiji",
		Short: "Submit tasks, show queues and consumers, and send commands to consumers",
		Long: "Swarmiji submits tasks and shows their results. It shows queues, consumers, jobs and schedules, sends commands\n" +
			"to consumers, handles dead letters, and checks a set-up.\n\n" +
			"Most commands need the URL of a broker, from --broker, $SWARMIJI_BROKER or a context. The commands schedule,\n" +
			"job, outbox, task, history and bedrock have a --store of their own. Results go to the standard output, errors\n" +
			"and remarks to the standard error.\n\n" +
			"The exit status is one of these:\n" +
			"  0  success\n" +
			"  1  an error that is not listed below\n" +
			"  2  wrong arguments or flags\n" +
			"  3  not found: a task, queue, job, entry or dead letter\n" +
			"  4  a server cannot be reached or refuses access, or no consumer answers\n" +
			"  5  the task that was waited for or shown has failed, was revoked or has expired\n" +
			"  6  job complete: the answer came too late\n" +
			"  7  job complete: there was an answer already",
		Example: "  swarmiji doctor --broker amqp://user:password@host:5672/\n" +
			"  SWARMIJI_BROKER=redis://host:6379 swarmiji call math.add '{\"a\": 1, \"b\": 2}' --wait",
		Args:              cobra.NoArgs,
		Annotations:       map[string]string{cli.Offline: "yes"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.Begin(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true}) // --help does it
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&a.Broker, "broker", "", "`URL` of the broker; its parameters results= and events= name other servers for results and events; default: $SWARMIJI_BROKER, which hides the password from other users of the machine")
	f.StringVar(&a.API, "api", "", "`URL` of the API of a swarmiji serve, such as http://localhost:8080/api/v1, instead of the broker, for the commands that show and change a running system; default: $SWARMIJI_API, unless --broker or --context is given; $SWARMIJI_API_TOKEN is sent with it")
	f.StringVar(&a.Context, "context", "", "`name` of a context, which has the URLs of a system (see swarmiji context); default: $SWARMIJI_CONTEXT, or the one that context use has chosen, unless a broker is given")
	f.StringVar(&a.Namespace, "namespace", "", "`name` that separates programs on one server; default: that of the URL, or \"default\"")
	f.StringVarP(&a.Output, "output", "o", "table", "`format` of the output: table, json or csv")
	f.DurationVar(&a.Timeout, "timeout", 10*time.Second, "how long the command may take, including a wait for a result; for dead, events and bedrock: how long connecting may take")
	f.StringVar(&a.KeyFile, "key-file", "", "`file` with keys to encrypt or sign (seal) tasks and results, one per line: an id, a space, 32 bytes in base64, and \"sign\" for a key that only signs; the first key seals; default: $SWARMIJI_KEYS, or no keys")
	f.StringVar(&a.ControlKeys, "control-keys", "", "`file` with keys to sign commands to consumers, one per line: an id, a space, the key in base64; the first key signs; default: $SWARMIJI_CONTROL_KEYS, or unsigned commands")
	root.AddCommand(
		a.callCmd(), a.resultCmd(), a.revokeCmd(), schedulecmd.Command(a.App), jobcmd.Command(a.App), servecmd.Bedrock(a.App), a.outboxCmd(), a.relayCmd(),
		a.workersCmd(), a.queueCmd(), a.queuesCmd(), a.taskCmd(), a.tasksCmd(), a.historyCmd(), a.eventsCmd(), deadcmd.Command(a.App), a.workflowCmd(), servecmd.Exporter(a.App), servecmd.Serve(a.App), servecmd.Dev(a.App), a.doctorCmd(), a.migrateCmd(),
		a.pingCmd(), a.statsCmd(), a.scaleCmd(), a.pauseCmd("swarmiji pause"), a.resumeCmd("swarmiji resume"), a.rateLimitCmd(), a.shutdownCmd(),
		a.auditCmd(), a.settingsCmd(), a.contextCmd(), a.versionCmd(), a.completionCmd(root),
	)
	helptext.Wrap(root)
	return root
}
