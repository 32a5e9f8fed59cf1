package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
)

// TestMissingFile shows that a command that needs no new database refuses a missing SQLite file and
// creates nothing. The error names the file and the next step.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	for args, next := range map[string]string{
		"outbox show --store URL":                               "migrate --up",
		"outbox dead --store URL":                               "--store",
		"outbox requeue a --store URL":                          "--store",
		"outbox drop a --yes --store URL":                       "--store",
		"relay --from URL --to redis://127.0.0.1:1":             "--from",
		"queue ls --broker URL":                                 "migrate --up",
		"queue ls --broker redis://127.0.0.1:1?results=URL":     "--broker",
		"queue show work --broker URL":                          "--broker",
		"dead list work --broker URL":                           "--broker",
		"dead export work --broker URL":                         "--broker",
		"tasks active --broker URL":                             "--broker",
		"ping --broker URL":                                     "--broker",
		"pause work --broker URL":                               "--broker",
		"result a --broker URL":                                 "--broker",
		"revoke a --broker URL":                                 "--broker",
		"events --broker URL":                                   "--broker",
		"exporter --listen 127.0.0.1:0 --broker URL":            "--broker",
		"schedule ls --store URL":                               "schedule add",
		"schedule ls --broker URL":                              "SWARMIJI_BROKER",
		"schedule rm a --store URL":                             "--store",
		"schedule ls --store redis://127.0.0.1:1 --results URL": "--results",
		"task ls --store URL":                                   "history record",
		"job ls --store URL":                                    "--store",
		"doctor --broker URL":                                   "--broker",
		"doctor --broker redis://127.0.0.1:1 --outbox URL":      "--outbox",
	} {
		t.Run(strings.ReplaceAll(args, "/", ""), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "typo.db")
			words := strings.Fields(strings.ReplaceAll(args, "URL", "sqlite://"+file))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // relay ran for ever
			defer cancel()
			var stdout, stderr bytes.Buffer
			status := run(ctx, append(words, "--timeout", "2s"), cli.Surroundings{
				Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" },
			})
			want := cli.ExitNotFound
			if words[0] == "doctor" {
				want = cli.ExitUnreachable
			}
			said := stdout.String() + stderr.String()
			if status != want || !strings.Contains(said, "no file "+file) || !strings.Contains(said, next) {
				t.Errorf("status %d, %s; want %d, the file and %q", status, said, want, next)
			}
			if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
				t.Errorf("it has created %v, %v", made, err)
			}
		})
	}
}

// TestMissingAudit shows that a change of a schedule does not create the file of a broker, which
// only has the audit log. A remark names the file.
func TestMissingAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, typo := "sqlite://"+filepath.Join(dir, "schedule.db"), filepath.Join(dir, "typo.db")
	migrated(t, store)
	var out bytes.Buffer
	args := []string{"schedule", "add", "every day at 9am", "report.make", "--store", store, "--broker", "sqlite://" + typo}
	status := run(t.Context(), args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
	if says := "no file " + typo + "; changes are made without its audit log"; status != cli.ExitOK || !strings.Contains(out.String(), says) {
		t.Errorf("status %d, %s; want %q", status, out.String(), says)
	}
	if _, err := os.Stat(typo); !os.IsNotExist(err) {
		t.Errorf("the file of the broker: %v", err)
	}
}
