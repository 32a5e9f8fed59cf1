package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/helptext"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
)

// surroundings hold the streams and the environment of the process.
type surroundings struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// app is one run of the program: its surroundings and the common options.
type app struct {
	surroundings

	context, broker, namespace string
	api                        string // the URL of a server of the HTTP API
	// of the context alone
	results, events, schedule, jobs string
	output                          string // "table", "json" or "csv"
	timeout                         time.Duration
	controlKeys                     string // a file
	keyFile                         string

	secrets []secret // texts that must not be printed

	begun bool // the arguments were valid and the command runs
}

// secret is a URL, and its text without the password.
type secret struct{ text, instead string }

// run runs the program and returns the exit status.
func run(ctx context.Context, args []string, s surroundings) int {
	a := &app{surroundings: s}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.begun && !errors.Is(err, errUsage) {
		err = fmt.Errorf("%w: %w", errUsage, err)
		if cmd.HasParent() {
			err = fmt.Errorf("%w; write %s", err, cmd.UseLine())
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(s.stderr, "swarmiji:", a.plain(err))
	}
	switch {
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprintln(s.stderr, "see "+cmd.CommandPath()+" --help")
	case errors.Is(err, broker.ErrNoQueue):
		_, _ = fmt.Fprintln(s.stderr, "see swarmiji queues for the names that consumers serve; --namespace keeps programs apart")
	}
	return status(err)
}

// plain returns the text of an error without the classes of this program. It also replaces URLs of
// servers that a library may have put into the text.
func (a *app) plain(err error) string {
	text := err.Error()
	for _, s := range a.secrets {
		text = strings.ReplaceAll(text, s.text, s.instead)
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "usage: "), "swarmiji: ")
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
		Annotations:       map[string]string{offline: "yes"},
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.begin(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true}) // --help does it
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&a.broker, "broker", "", "`URL` of the broker; its parameters results= and events= name other servers for results and events; default: $SWARMIJI_BROKER, which hides the password from other users of the machine")
	f.StringVar(&a.api, "api", "", "`URL` of the API of a swarmiji serve, such as http://localhost:8080/api/v1, instead of the broker, for the commands that show and change a running system; default: $SWARMIJI_API; $SWARMIJI_API_TOKEN is sent with it")
	f.StringVar(&a.context, "context", "", "`name` of a context, which has the URLs of a system (see swarmiji context); default: $SWARMIJI_CONTEXT, or the one that context use has chosen, unless a broker is given")
	f.StringVar(&a.namespace, "namespace", "", "`name` that separates programs on one server; default: that of the URL, or \"default\"")
	f.StringVarP(&a.output, "output", "o", "table", "`format` of the output: table, json or csv")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long the command may take, including a wait for a result; for dead, events and bedrock: how long connecting may take")
	f.StringVar(&a.keyFile, "key-file", "", "`file` with keys to encrypt or sign (seal) tasks and results, one per line: an id, a space, 32 bytes in base64, and \"sign\" for a key that only signs; the first key seals; default: $SWARMIJI_KEYS, or no keys")
	f.StringVar(&a.controlKeys, "control-keys", "", "`file` with keys to sign commands to consumers, one per line: an id, a space, the key in base64; the first key signs; default: $SWARMIJI_CONTROL_KEYS, or unsigned commands")
	root.AddCommand(
		a.callCmd(), a.resultCmd(), a.revokeCmd(), a.scheduleCmd(), a.jobCmd(), a.bedrockCmd(), a.outboxCmd(), a.relayCmd(),
		a.workersCmd(), a.queueCmd(), a.queuesCmd(), a.taskCmd(), a.tasksCmd(), a.historyCmd(), a.eventsCmd(), a.deadCmd(), a.workflowCmd(), a.exporterCmd(), a.serveCmd(), a.devCmd(), a.doctorCmd(), a.migrateCmd(),
		a.pingCmd(), a.statsCmd(), a.scaleCmd(), a.pauseCmd("swarmiji pause"), a.resumeCmd("swarmiji resume"), a.rateLimitCmd(), a.shutdownCmd(),
		a.auditCmd(), a.settingsCmd(), a.contextCmd(), a.versionCmd(), a.completionCmd(root),
	)
	helptext.Wrap(root)
	return root
}

// begin checks the common options.
func (a *app) begin(cmd *cobra.Command) error {
	if !slices.Contains([]string{"table", "json", "csv"}, a.output) {
		return fmt.Errorf("%w: -o is %q, want table, json or csv", errUsage, a.output)
	}
	if a.timeout <= 0 {
		return fmt.Errorf("%w: --timeout is %v", errUsage, a.timeout)
	}
	if p := cmd.Parent(); p == nil || p.Name() != "context" {
		if err := a.useContext(cmd.Annotations[offline] == ""); err != nil {
			return err
		}
	}
	if a.broker == "" {
		a.broker = a.getenv("SWARMIJI_BROKER")
	}
	if a.broker != "" && !strings.HasSuffix(a.broker, "://") { // a scheme alone is not secret
		a.secrets = append(a.secrets, secret{a.broker, open.Redact(a.broker)})
	}
	if a.controlKeys == "" {
		a.controlKeys = a.getenv("SWARMIJI_CONTROL_KEYS")
	}
	if a.keyFile == "" {
		a.keyFile = a.getenv("SWARMIJI_KEYS")
	}
	if a.api = cmp.Or(a.api, a.getenv("SWARMIJI_API")); a.api != "" {
		a.secrets = append(a.secrets, secret{a.api, open.Redact(a.api)})
	}
	if cmd.Annotations[offline] == "" && a.broker == "" && a.api == "" {
		return fmt.Errorf("%w: no broker; give --broker or set SWARMIJI_BROKER, such as amqp://user:password@host:5672/, or choose a context", errUsage)
	}
	if strings.HasPrefix(a.broker, "mem:") && cmd.Annotations[offline] == "" {
		return fmt.Errorf("%w: mem:// has no use here: nobody can reach the memory of another process", errUsage)
	}
	a.begun = true
	return nil
}

// offline marks commands that need no broker.
const offline = "offline"

// limited returns ctx with the limit of --timeout.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
