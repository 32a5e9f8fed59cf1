package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/task"
)

func (a *app) contextCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context add|use|ls|rm",
		Short: "Name the URLs of systems, and choose one",
		Long: "Context stores the URLs of a system under a name, in the file swarmiji/contexts.json of the user's directory of\n" +
			"configurations ($XDG_CONFIG_HOME, or ~/.config on Linux). context use chooses the one that later commands use,\n" +
			"and --context one for a single command. --broker and $SWARMIJI_BROKER override it.\n\n" +
			"The file holds no password. Write ${env:NAME} for the value of an environment variable, or ${file:PATH} for the\n" +
			"first line of a file; the value is read at each use.",
		Example: "  swarmiji context add prod --broker 'amqp://app:${env:RABBIT_PASSWORD}@rabbit.example:5672/'\n" +
			"  swarmiji context use prod",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{cli.Offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: context what? add, use, ls or rm", cli.ErrUsage))
		},
	}
	cmd.AddCommand(a.contextAddCmd(), a.contextUseCmd(), a.contextListCmd(), a.contextRemoveCmd())
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{cli.Offline: "yes"}
	}
	return cmd
}

// checkSecrets returns an error for a URL that has a password in plain text.
func checkSecrets(flag, text string) error {
	u, err := url.Parse(cli.Reference.ReplaceAllString(text, "x"))
	if err != nil {
		return fmt.Errorf("%w: --%s is no URL", cli.ErrUsage, flag) // the error of Parse repeats the URL
	}
	refer := fmt.Errorf("%w: --%s has a password in plain text; write ${env:NAME} or ${file:PATH} instead", cli.ErrUsage, flag)
	plain := func(value string) bool { return value != "" && value != "x" }
	if u.User != nil {
		password, has := u.User.Password()
		// nats://token@host
		token := !has && strings.HasPrefix(u.Scheme, "nats") || !has && u.Scheme == "tls"
		if plain(password) || token && plain(u.User.Username()) {
			return refer
		}
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if strings.Contains(name, "password") && plain(value) {
				return refer
			}
			if strings.Contains(value, "://") {
				return fmt.Errorf("%w: --%s has the parameter %s; give --results or --events instead", cli.ErrUsage, flag, cli.Visible(name))
			}
		}
	}
	return nil
}

func (a *app) contextAddCmd() *cobra.Command {
	var s cli.Setup
	use := false
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Store the URLs of a system under a name",
		Long: "Add stores a context. A context with the same name is replaced. The URLs are those of --broker and of the flags\n" +
			"of other commands; a password in plain text is refused. The common flags --namespace, --key-file and\n" +
			"--control-keys are stored too. It connects to nothing.",
		Example: "  swarmiji context add prod --broker 'amqp://app:${env:RABBIT_PASSWORD}@rabbit.example:5672/' --use\n" +
			"  swarmiji context add stage --broker redis://stage --jobs 'postgres://app:${file:/run/pg}@db/jobs'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Broker, s.Namespace, s.KeyFile, s.ControlKeys = "", a.Namespace, a.given(cmd, "key-file"), a.given(cmd, "control-keys")
			s.Broker = a.given(cmd, "broker")
			if err := task.CheckName(args[0]); err != nil {
				return err
			}
			for _, one := range [][2]string{{"broker", s.Broker}, {"results", s.Results}, {"events", s.Events}, {"schedule", s.Schedule}, {"jobs", s.Jobs}} {
				if err := checkSecrets(one[0], one[1]); err != nil {
					return err
				}
			}
			if s == (cli.Setup{}) {
				return fmt.Errorf("%w: the context is empty; give --broker or another flag", cli.ErrUsage)
			}
			c, err := a.ReadContexts()
			if err != nil {
				return err
			}
			c.Contexts[args[0]] = s
			if use {
				c.Current = args[0]
			}
			return a.WriteContexts(c)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.Results, "results", "", "`URL` of the result store; default: the server of the broker")
	f.StringVar(&s.Events, "events", "", "`URL` of the event bus; default: the server of the broker")
	f.StringVar(&s.Schedule, "schedule", "", "`URL` of the store of the schedule")
	f.StringVar(&s.Jobs, "jobs", "", "`URL` or file of the store of jobs")
	f.BoolVar(&use, "use", false, "also choose the context, as context use does")
	return cmd
}

// given returns the value of a flag that the user has given, and "" otherwise.
func (a *app) given(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
		return f.Value.String()
	}
	return ""
}

func (a *app) contextUseCmd() *cobra.Command {
	none := false
	cmd := &cobra.Command{
		Use:   "use NAME",
		Short: "Choose the context of later commands",
		Long:  "Use chooses the context that later commands use. With --none they use none. Exit status: 3 if there is no such context.",
		Example: "  swarmiji context use prod\n" +
			"  swarmiji context use --none",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if none == (len(args) == 1) {
				return fmt.Errorf("%w: give a name or --none", cli.ErrUsage)
			}
			c, err := a.ReadContexts()
			if err != nil {
				return err
			}
			c.Current = ""
			if !none {
				if _, ok := c.Contexts[args[0]]; !ok {
					return cli.NoContext(args[0], c)
				}
				c.Current = args[0]
			}
			return a.WriteContexts(c)
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no context")
	return cmd
}

// contextOutput is the output for a context.
type contextOutput struct {
	Name    string `json:"name"`
	Current bool   `json:"current,omitempty"`
	cli.Setup
}

func (a *app) contextListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the contexts",
		Long: "Ls prints the stored contexts, the chosen one with a star. URLs are shown without users, passwords and\n" +
			"parameters. No contexts are not an error.",
		Example: "  swarmiji context ls\n" +
			"  swarmiji context ls -o json",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.ReadContexts()
			if err != nil {
				return err
			}
			out := []contextOutput{}
			t := &cli.Table{Head: []string{"CURRENT", "NAME", "BROKER", "NAMESPACE", "RESULTS", "EVENTS", "SCHEDULE", "JOBS"}}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				s := c.Contexts[name]
				s.Broker, s.Results, s.Events = cli.Hidden(s.Broker), cli.Hidden(s.Results), cli.Hidden(s.Events)
				s.Schedule, s.Jobs = cli.HiddenStore(s.Schedule), cli.HiddenStore(s.Jobs)
				out = append(out, contextOutput{name, name == c.Current, s})
				mark := ""
				if name == c.Current {
					mark = "*"
				}
				t.Add(mark, name, s.Broker, s.Namespace, s.Results, s.Events, s.Schedule, s.Jobs)
			}
			return a.Show(out, t)
		},
	}
}

func (a *app) contextRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Delete a context",
		Long:  "Rm deletes a context from the file. Nothing else changes. Exit status: 3 if there is no such context.",
		Example: "  swarmiji context rm stage\n" +
			"  swarmiji context rm prod",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.ReadContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return cli.NoContext(args[0], c)
			}
			delete(c.Contexts, args[0])
			if c.Current == args[0] {
				c.Current = ""
			}
			return a.WriteContexts(c)
		},
	}
}
