package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/task"
)

// setup is a named context: the URLs of one system. Passwords are references, see expand.
type setup struct {
	Broker      string `json:"broker,omitempty"`
	Results     string `json:"results,omitempty"`
	Events      string `json:"events,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Schedule    string `json:"schedule,omitempty"`
	Jobs        string `json:"jobs,omitempty"`
	KeyFile     string `json:"key_file,omitempty"`
	ControlKeys string `json:"control_keys,omitempty"`
}

// contexts is the content of the file of contexts.
type contexts struct {
	Current  string           `json:"current,omitempty"` // "": no context is used
	Contexts map[string]setup `json:"contexts"`
}

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
		Annotations: map[string]string{offline: "yes"}, // only shows its help
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), fmt.Errorf("%w: context what? add, use, ls or rm", errUsage))
		},
	}
	cmd.AddCommand(a.contextAddCmd(), a.contextUseCmd(), a.contextListCmd(), a.contextRemoveCmd())
	for _, sub := range cmd.Commands() {
		sub.Annotations = map[string]string{offline: "yes"}
	}
	return cmd
}

// contextFile returns the path of the file of contexts.
func (a *app) contextFile() (string, error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("%w; set XDG_CONFIG_HOME", err)
		}
	}
	return filepath.Join(dir, "swarmiji", "contexts.json"), nil
}

// readContexts reads the file of contexts. A missing file has no context.
func (a *app) readContexts() (contexts, error) {
	c := contexts{Contexts: make(map[string]setup)}
	path, err := a.contextFile()
	if err != nil {
		return c, err
	}
	data, err := os.ReadFile(path) //nolint:gosec // a file of the user
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, fmt.Errorf("the contexts in %s: %w", path, err)
	}
	if c.Contexts == nil {
		c.Contexts = make(map[string]setup)
	}
	return c, nil
}

// writeContexts replaces the file of contexts in one step.
func (a *app) writeContexts(c contexts) error {
	path, err := a.contextFile()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "contexts-*") // readable by the user alone
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error counts
	}
	return err
}

// reference matches the name of a variable or file that holds a secret of the URL of a context.
var reference = regexp.MustCompile(`\$\{(env|file):([^}]*)\}`)

// expand replaces the references of a URL by their values, percent-encoded. Errors name the
// variable or the file and never a value.
func (a *app) expand(text string) (string, error) {
	var errs []error
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		value := a.getenv(m[2])
		if m[1] == "file" {
			data, err := os.ReadFile(m[2])
			if err != nil {
				errs = append(errs, err)
				return ""
			}
			value, _, _ = strings.Cut(string(data), "\n")
			value = strings.TrimSuffix(value, "\r")
		}
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", strings.ReplaceAll(m[0], "\n", "")))
		}
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	})
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("%w: the context: %w", errUsage, err)
	}
	return out, nil
}

// hidden returns a URL of a context for people, without user, password and parameters.
func hidden(text string) string {
	if text == "" {
		return ""
	}
	return open.Redact(reference.ReplaceAllString(text, "x"))
}

// checkSecrets returns an error for a URL that has a password in plain text.
func checkSecrets(flag, text string) error {
	u, err := url.Parse(reference.ReplaceAllString(text, "x"))
	if err != nil {
		return fmt.Errorf("%w: --%s is no URL", errUsage, flag) // the error of Parse repeats the URL
	}
	refer := fmt.Errorf("%w: --%s has a password in plain text; write ${env:NAME} or ${file:PATH} instead", errUsage, flag)
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
				return fmt.Errorf("%w: --%s has the parameter %s; give --results or --events instead", errUsage, flag, visible(name))
			}
		}
	}
	return nil
}

func (a *app) contextAddCmd() *cobra.Command {
	var s setup
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
			s.Broker, s.Namespace, s.KeyFile, s.ControlKeys = "", a.namespace, a.given(cmd, "key-file"), a.given(cmd, "control-keys")
			s.Broker = a.given(cmd, "broker")
			if err := task.CheckName(args[0]); err != nil {
				return err
			}
			for _, one := range [][2]string{{"broker", s.Broker}, {"results", s.Results}, {"events", s.Events}, {"schedule", s.Schedule}, {"jobs", s.Jobs}} {
				if err := checkSecrets(one[0], one[1]); err != nil {
					return err
				}
			}
			if s == (setup{}) {
				return fmt.Errorf("%w: the context is empty; give --broker or another flag", errUsage)
			}
			c, err := a.readContexts()
			if err != nil {
				return err
			}
			c.Contexts[args[0]] = s
			if use {
				c.Current = args[0]
			}
			return a.writeContexts(c)
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
				return fmt.Errorf("%w: give a name or --none", errUsage)
			}
			c, err := a.readContexts()
			if err != nil {
				return err
			}
			c.Current = ""
			if !none {
				if _, ok := c.Contexts[args[0]]; !ok {
					return noContext(args[0], c)
				}
				c.Current = args[0]
			}
			return a.writeContexts(c)
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no context")
	return cmd
}

// noContext returns the error for an unknown name.
func noContext(name string, c contexts) error {
	return fmt.Errorf("there is no context %s; there are: %s: %w", visible(name), strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", "), errNotFound)
}

// contextOutput is the output for a context.
type contextOutput struct {
	Name    string `json:"name"`
	Current bool   `json:"current,omitempty"`
	setup
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
			c, err := a.readContexts()
			if err != nil {
				return err
			}
			out := []contextOutput{}
			t := &table{head: []string{"CURRENT", "NAME", "BROKER", "NAMESPACE", "RESULTS", "EVENTS", "SCHEDULE", "JOBS"}}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				s := c.Contexts[name]
				s.Broker, s.Results, s.Events = hidden(s.Broker), hidden(s.Results), hidden(s.Events)
				s.Schedule, s.Jobs = hiddenStore(s.Schedule), hiddenStore(s.Jobs)
				out = append(out, contextOutput{name, name == c.Current, s})
				mark := ""
				if name == c.Current {
					mark = "*"
				}
				t.add(mark, name, s.Broker, s.Namespace, s.Results, s.Events, s.Schedule, s.Jobs)
			}
			return a.show(out, t)
		},
	}
}

// hiddenStore is hidden for the URL of a store, or a file.
func hiddenStore(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return hidden(text)
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
			c, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, ok := c.Contexts[args[0]]; !ok {
				return noContext(args[0], c)
			}
			delete(c.Contexts, args[0])
			if c.Current == args[0] {
				c.Current = ""
			}
			return a.writeContexts(c)
		},
	}
}

// useContext sets the common options from the context that --context, the environment or the file
// names. Options that are given override it. Without a context it does nothing. online reports that
// the command needs a broker.
func (a *app) useContext(online bool) error {
	name := a.context
	if name == "" {
		if name = a.getenv("SWARMIJI_CONTEXT"); a.broker != "" || a.getenv("SWARMIJI_BROKER") != "" {
			return nil
		}
	}
	c, err := a.readContexts()
	if err != nil {
		if name == "" {
			a.say("the contexts are not used: %s", a.plain(err))
			return nil
		}
		return err
	}
	if name == "" {
		name = c.Current
	}
	if name == "" {
		return nil
	}
	s, ok := c.Contexts[name]
	if !ok {
		return noContext(name, c)
	}
	for _, one := range []struct {
		to, from *string
		env      string
	}{
		{&a.broker, &s.Broker, ""}, {&a.results, &s.Results, ""}, {&a.events, &s.Events, ""},
		{&a.schedule, &s.Schedule, "SWARMIJI_SCHEDULE"}, {&a.jobs, &s.Jobs, "SWARMIJI_JOBS"},
	} {
		if *one.to != "" || *one.from == "" || a.context == "" && one.env != "" && a.getenv(one.env) != "" {
			continue
		}
		if *one.to, err = a.expand(*one.from); err != nil {
			if one.env == "" && !online { // the command needs no broker
				continue
			}
			return err
		}
		a.secrets = append(a.secrets, secret{*one.to, hiddenStore(*one.from)})
	}
	for _, one := range []struct{ to, from *string }{{&a.namespace, &s.Namespace}, {&a.keyFile, &s.KeyFile}, {&a.controlKeys, &s.ControlKeys}} {
		if *one.to == "" {
			*one.to = *one.from
		}
	}
	return nil
}
