package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

func (a *app) doctorCmd() *cobra.Command {
	var t cli.Target
	var strict bool
	var box string
	cmd := &cobra.Command{
		Use:   "doctor [QUEUE...]",
		Short: "Check a set-up for problems",
		Long: "Doctor checks servers, queues and consumers, and prints a line for each check: ok, warning or FAILED, with\n" +
			"details. It changes no queue. It checks these things:\n" +
			"  - Broker, result store and event bus can be reached and used.\n" +
			"  - No settings of the URL or the servers weaken what Swarmiji promises.\n" +
			"  - The queues are set up correctly, and tasks in them have consumers. It checks the named\n" +
			"    queues, those of the consumers that answer or send heartbeats, and \"default\".\n" +
			"  - The clocks of the consumers agree with the clock of this machine.\n" +
			"  - No handlers run beyond their hard time limit.\n" +
			"  - With --outbox, relays run, and no message of the outbox is late, failing or dead.\n\n" +
			"Exit status: 1 after a failed check, or 4 if a server cannot be reached. Warnings leave it 0, or with --strict\n" +
			"make it 1.",
		Example: "  swarmiji doctor\n" +
			"  swarmiji doctor reports mails -o json\n" +
			"  swarmiji doctor --outbox postgres://user:password@host/shop",
		RunE: func(cmd *cobra.Command, args []string) error { return a.doctor(cmd.Context(), args, &t, box, strict) },
	}
	t.Listen(cmd)
	cmd.Flags().StringVar(&box, "outbox", "", "`URL` of the database that holds an outbox; default: $SWARMIJI_OUTBOX")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 after a warning")
	return cmd
}

// findings collects the outcomes of the checks of this program.
type findings struct{ list []inspect.Finding }

func (f *findings) ok(check, format string, args ...any) {
	f.list = append(f.list, inspect.Finding{Check: check, Outcome: inspect.Fine, Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) warn(check, format string, args ...any) {
	f.list = append(f.list, inspect.Finding{Check: check, Outcome: inspect.Warn, Detail: fmt.Sprintf(format, args...)})
}

// fail adds the failure of a check. A missing SQLite file counts as a database that cannot be
// reached.
func (f *findings) fail(check string, err error) {
	code := inspect.CodeOf(err)
	if errors.Is(err, cli.ErrNotFound) {
		code = inspect.CodeUnavailable
	}
	f.list = append(f.list, inspect.Finding{Check: check, Outcome: inspect.Failed, Detail: err.Error(), Code: code})
}

// errWarnings reports warnings, with --strict. They are already printed.
var errWarnings = errors.New("there are warnings")

func (a *app) doctor(ctx context.Context, queues []string, t *cli.Target, box string, strict bool) error {
	if err := t.Check(); err != nil {
		return err
	}
	var f findings
	log := &collector{}
	a.settings(&f)
	err := a.Inspect(ctx, cli.Inspection{Listen: t.Collect, Replies: t.Replies, Logger: log.logger()}, func(ctx context.Context, api inspect.API) error {
		r, err := api.Check(ctx, inspect.CheckQuery{Queues: queues})
		if err == nil || a.API == "" { // a broker has answered before, the API only now
			f.ok("servers", "all servers answer and accept the login")
		}
		f.list = append(f.list, r.Findings...)
		return err
	})
	if cli.Status(err) == cli.ExitUsage {
		return err
	}
	if err != nil {
		f.fail("servers", err)
	}
	if box = cmp.Or(box, a.Getenv("SWARMIJI_OUTBOX")); box != "" {
		if err := a.checkOutbox(ctx, box, &f); err != nil {
			return err
		}
	}
	for _, line := range log.taken() {
		f.warn("log", "%s", line)
	}
	tab := &cli.Table{Head: []string{"CHECK", "OUTCOME", "DETAIL"}}
	for i := range f.list {
		f.list[i].Detail = a.Plain(errors.New(f.list[i].Detail))
		tab.Add(f.list[i].Check, string(f.list[i].Outcome), f.list[i].Detail)
	}
	err = a.Show(f.list, tab)
	has := func(match func(*inspect.Finding) bool) bool {
		return slices.ContainsFunc(f.list, func(one inspect.Finding) bool { return match(&one) })
	}
	switch {
	case has(func(one *inspect.Finding) bool { return one.Code == inspect.CodeUnavailable }):
		return cli.ErrUnreachable
	case has(func(one *inspect.Finding) bool { return one.Outcome == inspect.Failed }):
		return cli.ErrFindings
	case err == nil && strict && has(func(one *inspect.Finding) bool { return one.Outcome == inspect.Warn }):
		return errWarnings
	}
	return err
}
