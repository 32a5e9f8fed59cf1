package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/open"
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

// plain returns the text of an error without the classes of this program. It also replaces URLs of
// servers that a library may have put into the text.
func (a *app) plain(err error) string {
	text := err.Error()
	for _, s := range a.secrets {
		text = strings.ReplaceAll(text, s.text, s.instead)
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "usage: "), "swarmiji: ")
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
		a.hide(a.broker, open.Redact(a.broker))
	}
	if a.controlKeys == "" {
		a.controlKeys = a.getenv("SWARMIJI_CONTROL_KEYS")
	}
	if a.keyFile == "" {
		a.keyFile = a.getenv("SWARMIJI_KEYS")
	}
	if a.api = cmp.Or(a.api, a.getenv("SWARMIJI_API")); a.api != "" {
		a.hide(a.api, open.Redact(a.api))
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

// hide has plain print instead for text, which holds a password.
func (a *app) hide(text, instead string) {
	a.secrets = append(a.secrets, secret{text, instead})
}

// limited returns ctx with the limit of --timeout.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
