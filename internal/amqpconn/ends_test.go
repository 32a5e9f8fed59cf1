package amqpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestTLSIsNeverDroppedSilently(t *testing.T) {
	for name, cfg := range map[string]amqpconnect.Config{
		"in the configuration":    {URLs: []string{"amqp://u:s3cret@h/"}, TLS: &tls.Config{}},
		"for one of several URLs": {URLs: []string{"amqps://h/", "amqp://u:s3cret@h/"}, TLS: &tls.Config{}},
		"in the URL":              {URLs: []string{"amqp://u:s3cret@h/?server_name_indication=h"}},
	} {
		_, err := New(cfg, "", nil)
		if err == nil || !strings.Contains(err.Error(), "plain text") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("TLS %s and an amqp URL: %v, want an error that names plain text and no password", name, err)
		}
	}
	if _, err := New(amqpconnect.Config{URLs: []string{"amqps://h/", "amqps://i/"}, TLS: &tls.Config{}}, "", nil); err != nil {
		t.Errorf("TLS with amqps URLs: %v", err)
	}
}

// TestLostRightAfterTheHandshake shows that a connection that ended before NotifyClose has a
// reason, although the library gives none.
func TestLostRightAfterTheHandshake(t *testing.T) {
	eps, err := endpoints(amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	if err != nil {
		t.Fatal(err)
	}
	lost := func(owner context.Context) error {
		conn, sock, err := eps[0].dial(testwait.Long(t), "early end", slog.Default())
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		closed := conn.NotifyClose(make(chan *amqp.Error, 1))
		_ = sock.Conn.Close()
		for range closed { // the library closes the channel when it notifies no later listener
		}
		s := newSession(owner, 1, eps[0].addr, conn, sock, func(bool, string) {})
		select {
		case <-s.Done():
		case <-time.After(2 * time.Minute):
			t.Fatal("the session of a lost connection did not end")
		}
		s.watch.Wait()
		return s.Err()
	}
	if err := lost(t.Context()); errors.Is(err, ErrClosed) || err == nil {
		t.Errorf("a connection that was lost early: %v, want anything but ErrClosed: it is made again", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := lost(ended); !errors.Is(err, ErrClosed) {
		t.Errorf("a connection that its Conn closed early: %v, want ErrClosed", err)
	}
}

// TestSetupErrorIsTheServers shows that Publish returns the server's reason if Setup fails. Its
// requests ask for no answer, so a refusal may arrive before the next request that does.
func TestSetupErrorIsTheServers(t *testing.T) {
	c := open(t, amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	q := queue(t, c)
	ctx, cancel := context.WithCancel(testwait.Long(t))
	defer cancel()
	attempts, returned := 0, make(chan struct{})
	p := NewPublisher(c, PublisherConfig{Setup: func(ch *amqp.Channel) error {
		// when ctx ends within an attempt, the previous attempt has the reason
		if attempts++; attempts == 2 {
			cancel()
			<-returned
			return nil
		}
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		if _, err := ch.QueueDeclare(q, true, false, false, true, amqp.Table{"x-max-length": int32(1)}); err != nil {
			return err
		}
		<-closed
		return nil
	}})
	err := p.Publish(ctx, "", q, message("m"))
	close(returned)
	if !errors.Is(err, ErrUnavailable) || !IsPrecondition(err) {
		t.Errorf("Publish on a channel whose setup is refused: %v, want ErrUnavailable with the server's 406", err)
	}
}
