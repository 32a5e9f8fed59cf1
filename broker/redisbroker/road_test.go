package redisbroker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// TestPushedTaskRuns shows that a JSON task that another program pushes runs like a producer's
// task, with retries.
func TestPushedTaskRuns(t *testing.T) {
	t.Parallel()
	type mail struct {
		To string `json:"to"`
	}
	srv := testserver.RequireRedis(t)
	ns := testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns, Poll: 50 * time.Millisecond})
	c, err := consumer.New(consumer.Config{
		Broker: b, Queues: map[string]consumer.QueueConfig{"mails": {}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan string, 10)
	send := task.New[mail, string]("email.send", task.WithMaxRetries(2), task.WithRetryDelay(20*time.Millisecond))
	err = send.Handle(c, func(ctx context.Context, m mail) (string, error) {
		info, _ := task.FromContext(ctx)
		if m.To == "later@example.org" && info.Retries == 0 {
			return "", task.Retry(errors.New("not at home"))
		}
		sent <- fmt.Sprintf("%s, retry %d", m.To, info.Retries)
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	list := "swj:{" + ns + ".mails}:r0"
	do(t, srv, "RPUSH", list, `{"task":"email.send","args":{"to":"a@example.org"}}`)
	do(t, srv, "LPUSH", list, `{"task":"email.send","args":{"to":"later@example.org"},"id":"own"}`)
	got := map[string]bool{}
	for range 2 {
		select {
		case s := <-sent:
			got[s] = true
		case <-time.After(2 * time.Minute):
			st, err := b.Stats(testwait.Long(t), "mails")
			t.Fatalf("only these ran: %v; %+v, %v", got, st, err)
		}
	}
	if !got["a@example.org, retry 0"] || !got["later@example.org, retry 1"] {
		t.Errorf("these ran: %v", got)
	}
	testwait.Until(t, "that nothing is left", func() bool {
		st, err := b.Stats(testwait.Long(t), "mails")
		return err == nil && st == broker.Stats{}
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}
