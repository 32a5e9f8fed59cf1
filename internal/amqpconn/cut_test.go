package amqpconn

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/netconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// failWrites makes each Write of s fail, like after a reset that the reader has not seen yet.
func failWrites(s *socket) { s.Stop(syscall.ECONNRESET) }

// TestPublishAfterAReset resets the connection in the middle of a Publish, and the writer detects
// it before the reader. The message was not sent, so Publish sends it on the next connection and
// does not return ErrMalformed.
func TestPublishAfterAReset(t *testing.T) {
	c := open(t, amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	q := queue(t, c)
	p := NewPublisher(c, PublisherConfig{})
	if err := p.Open(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	out := p.live.Load()
	out.mu.Lock()
	res := make(chan error, 1)
	go func() { res <- p.Publish(testwait.Long(t), "", q, message("m")) }()
	testwait.Until(t, "the message to take a slot", func() bool { return len(out.slots) < cap(out.slots) })
	failWrites(out.ch.sess.sock)
	out.mu.Unlock()
	testwait.Until(t, "the publisher to leave the channel", func() bool { return p.live.Load() == nil || len(res) > 0 })
	_ = out.ch.sess.sock.Conn.Close() // now the reader sees it, too
	if err := <-res; err != nil {
		t.Fatalf("Publish over a connection that was reset: %v, want that it is sent over the next one", err)
	}
	if n := depth(t, c, q); n != 1 {
		t.Errorf("the queue holds %d messages, want 1", n)
	}
}

// reset makes each Write of s fail at once, and its reads soon after.
func reset(s *socket) {
	failWrites(s)
	time.AfterFunc(time.Millisecond, func() { _ = s.Conn.Close() })
}

// TestSessionAfterAReset shows that operations on a connection that was reset return an error with
// a class.
func TestSessionAfterAReset(t *testing.T) {
	c := open(t, amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	sess, err := c.Session(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	reset(sess.sock)
	if _, err := sess.Channel(testwait.Long(t)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Channel over a connection that was reset: %v, want ErrUnavailable and the reason", err)
	}

	if sess, err = c.Session(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	err = sess.Do(testwait.Long(t), func(ch *amqp.Channel) error {
		reset(sess.sock)
		_, err := ch.QueueDeclarePassive("any", true, false, false, false, nil)
		return err
	})
	if !errors.Is(err, ErrIndeterminate) || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Do over a connection that was reset: %v, want ErrIndeterminate and the reason", err)
	}
}

// TestPublishCutAnywhere cuts the connection after various numbers of bytes. A confirmed message is
// in the queue once, and a message with an unknown outcome at most once.
func TestPublishCutAnywhere(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	direct := open(t, amqpconnect.Config{URLs: []string{srv.URL()}})
	body := strings.Repeat("b", 300<<10) // three frames
	for _, at := range []int64{1, 30, 100, 5_000, 128 << 10, 290 << 10, 300 << 10, 300<<10 + 100} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			proxy := testserver.NewProxy(t, srv.Addr())
			c := open(t, amqpconnect.Config{URLs: []string{proxy.URL(srv.URL())}})
			p := NewPublisher(c, PublisherConfig{})
			if err := p.Open(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
			q := queue(t, direct)
			proxy.Truncate(true, false, at)
			sess := p.live.Load().ch.sess
			healed := make(chan struct{})
			go func() { // a message that was not sent is sent again, which needs the proxy
				defer close(healed)
				<-sess.Done()
				proxy.Heal()
			}()
			err := p.Publish(testwait.Long(t), "", q, &amqp.Publishing{MessageId: "m", DeliveryMode: amqp.Persistent, Body: []byte(body)})
			<-healed
			switch n := depth(t, direct, q); {
			case err == nil && n != 1:
				t.Errorf("a confirmed message is there %d times", n)
			case err != nil && !errors.Is(err, ErrIndeterminate):
				t.Errorf("Publish: %v, want ErrIndeterminate", err)
			case n > 1:
				t.Errorf("a message that was published once is there %d times", n)
			}
		})
	}
}

// TestMalformedIsTheEncodersWord shows that a message that AMQP cannot encode returns ErrMalformed
// and is not sent again.
func TestMalformedIsTheEncodersWord(t *testing.T) {
	c := open(t, amqpconnect.Config{URLs: []string{testserver.RequireRabbit(t).URL()}})
	q := queue(t, c)
	p := NewPublisher(c, PublisherConfig{})
	for name, m := range map[string]*amqp.Publishing{
		"a header of a strange type": {Headers: amqp.Table{"h": 1 + 2i}},
		"a long property":            {CorrelationId: strings.Repeat("c", 256)},
		"a long header name":         {Headers: amqp.Table{strings.Repeat("h", 256): "v"}},
	} {
		if err := p.Publish(testwait.Long(t), "", q, m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

func TestWriteErrorClass(t *testing.T) {
	cut := fmt.Errorf("%w: %w", netconn.ErrNotWritten, syscall.ECONNRESET)
	for name, c := range map[string]struct {
		err  error
		sent int64
		want error
	}{
		"nothing left":                    {cut, 0, errGone},
		"less than the message left":      {cut, 100, errGone},
		"others flushed, then it failed":  {cut, 200, ErrIndeterminate},
		"the library saw the end":         {amqp.ErrClosed, 0, errGone},
		"the encoder refuses":             {amqp.ErrFieldType, 0, ErrMalformed},
		"the encoder refuses, others not": {amqp.ErrFieldType, 200, ErrMalformed},
	} {
		if err := writeError(c.err, c.sent, 100); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
