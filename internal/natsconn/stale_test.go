package natsconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// A message may be registered just after its session was lost, while the client library still
// accepts it. Publish then returns at once and not when its ctx ends.
func TestPublishOnASessionThatWasJustLost(t *testing.T) {
	c, err := New(natsconnect.Config{URLs: []string{testserver.RequireNATS(t).URL()}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	subject := testserver.Namespace()
	if _, err := s.NATS.Subscribe(subject, func(*nats.Msg) {}); err != nil { // never answers
		t.Fatal(err)
	}
	c.lost(s.sock, nil) // the library does not know yet
	c.live.Store(s)     // as a publisher saw it a moment before
	if _, err := c.Publish(ctx, nats.NewMsg(subject)); !errors.Is(err, ErrIndeterminate) || ctx.Err() != nil {
		t.Errorf("Publish: %v, want ErrIndeterminate before ctx ends", err)
	}
	c.live.Store(nil)
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// The caller itself writes a large message. If the connection has just ended, and neither the
// library nor the Conn knows it, no data was sent. The message then waits for the next connection.
func TestLargeMessageOnAConnectionThatHasJustEnded(t *testing.T) {
	c, err := New(natsconnect.Config{URLs: []string{testserver.RequireNATS(t).URL()}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.pubs.subscribe(s.NATS); err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	s.sock.Stop(errors.New("broken pipe")) // the first step of Fail
	m := nats.NewMsg(testserver.Namespace())
	m.Data = make([]byte, 100<<10)
	ended := make(chan error, 1)
	go func() {
		defer close(told)
		_, err := c.Publish(ctx, m)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("Publish: %v before the loss was told", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.sock.Fail(errors.New("broken pipe"))
	<-told
	if len(ended) > 0 {
		// sent on the next connection, where no stream accepts it
		if err := <-ended; !errors.Is(err, ErrNoStream) {
			t.Errorf("Publish: %v, want ErrNoStream", err)
		}
	}
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A request that is written when the connection has just ended returns an error with a class, so
// that the caller may repeat it.
func TestLargeRequestOnAConnectionThatHasJustEnded(t *testing.T) {
	c, err := New(natsconnect.Config{URLs: []string{testserver.RequireNATS(t).URL()}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken pipe")
	s.sock.Stop(broken) // the first step of Fail
	err = c.Do(ctx, func(ctx context.Context, s *Session) error {
		_, err := s.NATS.RequestWithContext(ctx, testserver.Namespace(), make([]byte, 100<<10))
		return err
	})
	if !errors.Is(err, ErrIndeterminate) || !errors.Is(err, broken) {
		t.Errorf("Do: %v, want ErrIndeterminate and the reason", err)
	}
	s.sock.Fail(broken)
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}
