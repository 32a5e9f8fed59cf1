package amqpbroker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/wake"
)

// TestNotesBeforeMessages shows that the stream of notes is older than the messages of a queue. The
// server may take long to create it. A message that is older than the notes counts as
// acknowledged when it is delivered again.
func TestNotesBeforeMessages(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(namespace string) *Broker {
		b, err := New(Config{Connect: amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}}, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(ctx) })
		return b
	}
	namespace := testserver.Namespace()
	consumer, producer := open(namespace), open(namespace)
	consumer.acks.log.declaring <- struct{}{} // the stream is being created
	declared, published := make(chan error, 1), make(chan error, 1)
	go func() { declared <- consumer.Declare(ctx, broker.Queue{Name: "q"}) }()
	go func() {
		err := broker.ErrNoQueue
		// The server may refuse messages of a queue while it creates it.
		for (errors.Is(err, broker.ErrNoQueue) || errors.Is(err, broker.ErrBlocked)) && wake.Sleep(ctx, 5*time.Millisecond) {
			err = producer.Publish(ctx, "q", &broker.Message{ID: "m", Priority: defaultPriority})
		}
		published <- err
	}()
	select {
	case err := <-published:
		t.Errorf("published with %v before the stream of notes exists", err)
	case <-time.After(200 * time.Millisecond):
	}
	<-consumer.acks.log.declaring
	if err := <-declared; err != nil {
		t.Fatal(err)
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	if found, err := consumer.Describe(ctx, "q"); err != nil || found.Name != "q" {
		t.Errorf("the queue is %+v, %v", found, err)
	}
}
