// Package cli holds the shared parts of the commands of swarmiji: common options, contexts, opening
// of servers and stores, output, and exit statuses. It knows no command.
package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/open"
)

// Surroundings hold the streams and the environment of the process.
type Surroundings struct {
	Stdin          io.Reader
	Terminal       bool // a person can answer at Stdin
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// App is one run of the program: its surroundings and the common options.
type App struct {
	Surroundings

	Context, Broker, Namespace string
	API                        string // the URL of a server of the HTTP API
	// of the context alone
	Results, Events, Schedule, Jobs string
	Output                          string // "table", "json" or "csv"
	Timeout                         time.Duration
	ControlKeys                     string // a file
	KeyFile                         string

	secrets []secret // texts that must not be printed

	Begun bool // the arguments were valid and the command runs
}

// secret is a URL, and its text without the password.
type secret struct{ text, instead string }

// Plain returns the text of an error without the classes of this program. It also replaces URLs of
// servers that a library may have put into the text.
func (a *App) Plain(err error) string {
	text := err.Error()
	for _, s := range a.secrets {
		text = strings.ReplaceAll(text, s.text, s.instead)
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "usage: "), "swarmiji: ")
}

// Begin checks the common options.
func (a *App) Begin(cmd *cobra.Command) error {
	if !slices.Contains([]string{"table", "json", "csv"}, a.Output) {
		return fmt.Errorf("%w: -o is %q, want table, json or csv", ErrUsage, a.Output)
	}
	if a.Timeout <= 0 {
		return fmt.Errorf("%w: --timeout is %v", ErrUsage, a.Timeout)
	}
	if p := cmd.Parent(); p == nil || p.Name() != "context" {
		if err := a.useContext(cmd.Annotations[Offline] == ""); err != nil {
			return err
		}
	}
	if a.Broker == "" {
		a.Broker = a.Getenv("SWARMIJI_BROKER")
	}
	if a.Broker != "" && !strings.HasSuffix(a.Broker, "://") { // a scheme alone is not secret
		a.Hide(a.Broker, open.Redact(a.Broker))
	}
	if a.ControlKeys == "" {
		a.ControlKeys = a.Getenv("SWARMIJI_CONTROL_KEYS")
	}
	if a.KeyFile == "" {
		a.KeyFile = a.Getenv("SWARMIJI_KEYS")
	}
	if f := cmd.Flags(); a.API == "" && !f.Changed("broker") && !f.Changed("context") {
		a.API = a.Getenv("SWARMIJI_API") // a flag counts more than the environment
	}
	if a.API != "" {
		a.Hide(a.API, open.Redact(a.API))
	}
	if cmd.Annotations[Offline] == "" && a.Broker == "" && a.API == "" {
		return fmt.Errorf("%w: no broker; give --broker or set SWARMIJI_BROKER, such as amqp://user:password@host:5672/, or choose a context", ErrUsage)
	}
	if cmd.Annotations[Offline] == "" {
		if err := NotMemory(a.Broker); err != nil {
			return err
		}
	}
	a.Begun = true
	return nil
}

// NotMemory returns [ErrUsage] for a URL of the memory of a process. The command line is a process
// of its own.
func NotMemory(url string) error {
	if strings.HasPrefix(url, "mem:") {
		return fmt.Errorf("%w: mem:// is the memory of one process, and the command line cannot read that of another", ErrUsage)
	}
	return nil
}

// Offline marks commands that need no broker.
const Offline = "offline"

// Hide makes Plain print instead in place of text, which may hold a password.
func (a *App) Hide(text, instead string) {
	a.secrets = append(a.secrets, secret{text, instead})
}

// Limited returns ctx with the limit of --timeout.
func (a *App) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.Timeout)
}
