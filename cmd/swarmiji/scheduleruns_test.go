package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// TestScheduleRuns shows that ls and show print the last runs of an entry, with their results.
func TestScheduleRuns(t *testing.T) {
	ctx := testwait.Long(t)
	dir := t.TempDir()
	url, resultsURL := "sqlite://"+dir+"/schedule.db", "sqlite://"+dir+"/results.db"
	store, err := open.Schedule(ctx, url, open.ScheduleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close(context.Background()) }()
	results, err := open.Results(ctx, resultsURL, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = results.Close(context.Background()) }()
	l, err := schedule.NewListener(schedule.ListenerConfig{Store: store, Results: results, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	report := task.New[int, string]("report.make")
	if err := report.Handle(l, func(context.Context, int) (string, error) { return "made", nil }); err != nil {
		t.Fatal(err)
	}
	s, err := schedule.New(schedule.Config{Store: store, Results: results})
	if err != nil {
		t.Fatal(err)
	}
	added, err := s.Add(ctx, schedule.ByCron("* * * * * * *"), report.Call(1), schedule.WithName("nightly"))
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	testwait.Until(t, "a run with a result", func() bool {
		runs, err := s.Runs(ctx, added.ID)
		return err == nil && len(runs) > 0 && runs[0].Record != nil && runs[0].Record.State.Terminal()
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	runs, err := s.Runs(ctx, added.ID)
	if err != nil {
		t.Fatal(err)
	}
	last := runs[0].Due.UTC().Format(time.DateTime) + "Z succeeded"
	for _, c := range []struct{ args, want string }{
		{"ls --results " + resultsURL, "report.make nightly - " + last},
		{"ls", "report.make nightly - " + strings.TrimSuffix(last, " succeeded")},
		{"show nightly --results " + resultsURL, "RAN " + last},
		{"show nightly -o json --results " + resultsURL, `"state": "succeeded"`},
		{"show nightly -o json", `"task": "` + string(runs[0].Task) + `"`},
	} {
		var out strings.Builder
		args := append([]string{"schedule"}, strings.Fields(c.args)...)
		status := run(ctx, append(args, "--store", url), cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		if text := strings.Join(strings.Fields(out.String()), " "); status != 0 || !strings.Contains(text, c.want) {
			t.Errorf("%s: status %d, want %q in\n%s", c.args, status, c.want, out.String())
		}
	}
	var out strings.Builder
	if status := run(ctx, []string{"schedule", "ls", "--store", url, "--results", "ftp://user:hunter2@host"}, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}); status != cli.ExitUsage || strings.Contains(out.String(), "hunter2") {
		t.Errorf("a wrong URL: status %d\n%s", status, out.String())
	}
}
