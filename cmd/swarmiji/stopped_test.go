package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
)

// TestStoppedConsumers: if no consumer runs, doctor warns about the tasks of a named queue, and
// queues says that it does not know the names of queues. The doctor also names a paused queue.
func TestStoppedConsumers(t *testing.T) {
	t.Parallel()
	url := testserver.RequireRedis(t).URL() + "?namespace=" + testserver.Namespace()
	command := func(args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append(args, "--broker", url)
		status := run(t.Context(), args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
		if status != 0 {
			t.Fatalf("%v: status %d\n%s%s", args, status, &out, &errs)
		}
		return out.String(), errs.String()
	}
	command("call", "mail.send", "--declare", "--queue", "mail")

	out, _ := doctored(t, "mail", "--broker", url)
	want(t, out, `queue mail +warning +1 tasks wait, and no consumer takes them: .*; start one`)
	out, _ = doctored(t, "--broker", url) // Redis lists its queues
	want(t, out, `queue mail +warning +1 tasks wait`)

	swarm, err := open.Open(t.Context(), url, open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := swarm.Consumer(consumer.Config{
		Control: &control.Config{}, Queues: map[string]consumer.QueueConfig{"letters": {Workers: 1}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stopped := func() {
		stop()
		if err := errors.Join(<-ended, swarm.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
	var paused bytes.Buffer
	testwait.Until(t, "the consumer pauses", func() bool {
		paused.Reset()
		return run(t.Context(), []string{"pause", "letters", "--replies", "1", "--broker", url}, cli.Surroundings{
			Stdin: strings.NewReader(""), Stdout: &paused, Stderr: &paused, Getenv: func(string) string { return "" },
		}) == 0
	})
	out, _ = doctored(t, "letters", "--broker", url, "--collect", patience.String(), "--replies", "1")
	want(t, out, `queue letters +warning +is paused on 1 of 1 consumers, 0 waiting: swarmiji resume letters`)
	stopped()

	out, remark := command("queues", "--collect", "50ms")
	if !strings.Contains(out, "mail") || !strings.Contains(out, "letters") {
		t.Errorf("queues without a name:\n%s%s", out, remark)
	}
	if out, remark = command("queues", "mail"); !strings.Contains(out, "mail") || remark != "" {
		t.Errorf("queues mail:\n%s%s", out, remark)
	}
}
