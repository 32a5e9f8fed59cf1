package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// TestSilentConsumer: doctor, queues and workers show the queues of a consumer without control,
// which sends only heartbeats.
func TestSilentConsumer(t *testing.T) {
	t.Parallel()
	url := testserver.RequireRedis(t).URL() + "?namespace=" + testserver.Namespace()
	swarm, err := open.Open(t.Context(), url, open.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := swarm.Consumer(consumer.Config{
		Queues: map[string]consumer.QueueConfig{"mail": {Workers: 1}}, Report: events.Report{HeartbeatEvery: 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	doomed := task.New[int, int]("doomed", task.WithQueue("mail"), task.WithMaxRetries(0))
	if err := doomed.Handle(c, func(context.Context, int) (int, error) { return 0, errors.New("doomed") }); err != nil {
		t.Fatal(err)
	}
	p, err := swarm.Producer(producer.Config{Queues: []broker.Queue{{Name: "mail"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		stop()
		if err := errors.Join(<-ended, p.Close(t.Context()), swarm.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if _, err := doomed.Submit(t.Context(), p, 1); err != nil {
		t.Fatal(err)
	}
	i, _ := capability.As[broker.Inspector](swarm.Broker)
	testwait.Until(t, "the task is dead", func() bool {
		st, err := i.Stats(t.Context(), "mail")
		return err == nil && st.Dead == 1
	})

	out, status := doctored(t, "--broker", url, "--collect", "1s")
	want(t, out, `consumers +warning +1 send heartbeats, but no consumer answered`, `queue mail +warning +has 1 dead letters`)
	if status != 0 {
		t.Errorf("doctor: status %d", status)
	}
	if out, status = doctored(t, "--broker", url, "--collect", "1s", "--strict"); status != 1 {
		t.Errorf("doctor --strict: status %d\n%s", status, out)
	}
	for _, args := range [][]string{{"queues", "--collect", "1s"}, {"workers", "--listen", "1s"}} {
		var out bytes.Buffer
		status := run(t.Context(), append(args, "--broker", url), cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		if status != 0 || !strings.Contains(out.String(), " mail ") && !strings.Contains(out.String(), "\nmail ") {
			t.Errorf("%s: status %d, no queue mail in\n%s", args, status, &out)
		}
	}
}
