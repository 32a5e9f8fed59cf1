package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/open"
)

func (a *app) doctorCmd() *cobra.Command {
	var t target
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
			"  - With --outbox, relays run, and no message of the outbox is late, failing or dead.\n\n" +
			"Exit status: 1 after a failed check, or 4 if a server cannot be reached. Warnings leave it 0, or with --strict\n" +
			"make it 1.",
		Example: "  swarmiji doctor\n" +
			"  swarmiji doctor reports mails -o json\n" +
			"  swarmiji doctor --outbox postgres://user:password@host/shop",
		RunE: func(cmd *cobra.Command, args []string) error { return a.doctor(cmd.Context(), args, &t, box, strict) },
	}
	cmd.Flags().DurationVar(&t.collect, "collect", listenTime, "how long to wait for answers and heartbeats of consumers")
	cmd.Flags().IntVar(&t.replies, "replies", 0, "stop waiting after this many answers of consumers; default: wait for --collect")
	cmd.Flags().StringVar(&box, "outbox", "", "`URL` of the database that holds an outbox; default: $SWARMIJI_OUTBOX")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 after a warning")
	return cmd
}

// The outcomes of a check.
const (
	fine = "ok"
	warn = "warning"
	fail = "FAILED"
)

// finding is the outcome of one check.
type finding struct {
	Check   string `json:"check"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
}

// findings collects the outcomes of all checks.
type findings struct {
	list []finding
	err  error // joined errors of the failed checks
}

func (f *findings) ok(check, format string, args ...any)   { f.add(check, fine, format, args...) }
func (f *findings) warn(check, format string, args ...any) { f.add(check, warn, format, args...) }

func (f *findings) fail(check string, err error) {
	f.add(check, fail, "%v", err)
	f.err = errors.Join(f.err, err)
}

func (f *findings) add(check, outcome, format string, args ...any) {
	f.list = append(f.list, finding{check, outcome, fmt.Sprintf(format, args...)})
}

// errFindings reports failed checks. Their details are already printed.
var errFindings = errors.New("there are failures")

// errWarnings reports warnings, with --strict. They are already printed.
var errWarnings = errors.New("there are warnings")

func (a *app) doctor(ctx context.Context, queues []string, t *target, box string, strict bool) error {
	keys, err := a.keys()
	if err = errors.Join(err, t.check()); err != nil {
		return err
	}
	var f findings
	log := &collector{}
	a.settings(&f)
	err = a.with(ctx, open.Options{Control: true, Logger: log.logger()}, func(ctx context.Context, s *open.Swarm) error {
		f.ok("servers", "all servers answer and accept the login")
		a.examine(ctx, s, &f, examination{keys: keys, queues: queues, wait: control.Wait{Replies: t.replies, Timeout: t.collect}})
		return nil
	})
	if errors.Is(err, errUsage) {
		return err
	}
	if err != nil {
		f.fail("servers", err)
	}
	if box = cmp.Or(box, a.getenv("SWARMIJI_OUTBOX")); box != "" {
		if err := a.checkOutbox(ctx, box, &f); err != nil {
			return err
		}
	}
	for _, line := range log.taken() {
		f.warn("log", "%s", line)
	}
	tab := &table{head: []string{"CHECK", "OUTCOME", "DETAIL"}}
	for i := range f.list {
		f.list[i].Detail = a.plain(errors.New(f.list[i].Detail))
		tab.add(f.list[i].Check, f.list[i].Outcome, f.list[i].Detail)
	}
	err = a.show(f.list, tab)
	if f.err != nil {
		if status(f.err) == exitUnreachable {
			return fmt.Errorf("%w: %w", errFindings, f.err)
		}
		return errFindings
	}
	if err == nil && strict && slices.ContainsFunc(f.list, func(one finding) bool { return one.Outcome == warn }) {
		err = errWarnings
	}
	return err
}

// examination holds the parameters of the checks.
type examination struct {
	keys   *control.Keys
	queues []string
	wait   control.Wait
}

// examine runs the checks that need servers.
func (a *app) examine(ctx context.Context, s *open.Swarm, f *findings, x examination) {
	checkResults(ctx, s, f)
	checkEvents(ctx, s, f, a.timeout/4)
	begin := time.Now()
	c, err := ask(ctx, s, x.keys, x.wait)
	switch {
	case errors.Is(err, errNobody) && c.silent > 0:
		f.warn("consumers", "%d send heartbeats, but %v", c.silent, err)
	case errors.Is(err, errNobody):
		f.warn("consumers", "%v", err)
	case err != nil && len(c.replies) == 0:
		f.fail("consumers", err)
	default:
		f.ok("consumers", "%d answer", len(c.replies))
		checkClocks(f, c.replies, begin)
	}
	checkQueues(ctx, s, f, x.queues, &c)
}
