package main

import (
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
)

// TestOutboxFailing lists the messages of an outbox, and drops the one that fails.
func TestOutboxFailing(t *testing.T) {
	t.Parallel()
	b, ctx := newBoxed(t, ""), testwait.Long(t)
	rows, err := b.Read(ctx, all64(), false)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	failed := outbox.Settlement{Failed: []outbox.Failure{{Ref: rows[0].Ref(), Reason: "no such queue", After: time.Hour}}}
	if err := b.Settle(ctx, failed); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
		not    string
	}{
		{"outbox list -o csv", cli.ExitOK, "\nb,mail,k,0,-,-\n", "of more"},
		{"outbox list --failing", cli.ExitOK, "no such queue", "\nb "},
		{"outbox ls --failing -o json", cli.ExitOK, `"failures": 1`, `"id": "b"`},
		{"outbox list --limit 1", cli.ExitOK, "the oldest 1 of more", "\nb "},
		{"outbox list --limit 0", cli.ExitUsage, "--limit", ""},
		{"outbox drop b --yes", cli.ExitNotFound, "no dead or failing message", ""},
		{"outbox requeue a", cli.ExitNotFound, "no dead message", ""},
		{"outbox drop a --yes", cli.ExitOK, "1 dropped", ""},
		{"outbox list -o csv", cli.ExitOK, "\nb,mail,k,0,-,-\n", "\na,"},
		{"outbox list --failing -o json", cli.ExitOK, "[]", "reason"},
	} {
		status, stdout, stderr := b.command(ctx, strings.Fields(c.args)...)
		said := stdout + stderr
		if status != c.status || !strings.Contains(said, c.says) || c.not != "" && strings.Contains(said, c.not) {
			t.Errorf("%s: status %d, %s; want %d, %q and not %q", c.args, status, said, c.status, c.says, c.not)
		}
	}
}
