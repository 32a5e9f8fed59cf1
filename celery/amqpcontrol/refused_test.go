package amqpcontrol_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/celery/amqpcontrol"
	"github.com/swarmiji/swarmiji/celery/control"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// journal collects the text of a log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// TestRefusedMailboxIsLogged shows that the log has the reason once while the server refuses the
// exchange of commands. The listener works when the exchange is right.
func TestRefusedMailboxIsLogged(t *testing.T) {
	url := testserver.RequireRabbit(t).NewVhost(t)
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.ExchangeDeclare("celery.pidbox", amqp.ExchangeFanout, true, false, false, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	var log journal
	tr, err := amqpcontrol.New(amqpcontrol.Config{
		Connect: amqpconnect.Config{URLs: []string{url}}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Close(context.Background()) }()
	opened := make(chan error, 1)
	go func() {
		_, err := tr.Listen(testwait.Long(t), control.Mailbox{Exchange: control.Commands, Node: "go@vm"}, func(*control.Message) {})
		opened <- err
	}()
	const reason = "PRECONDITION_FAILED"
	testwait.Until(t, "the reason in the log", func() bool { return strings.Contains(log.String(), reason) })
	if err := ch.ExchangeDelete("celery.pidbox", false, false); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("Listen: %v", err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
