package natsconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/testserver"
)

// A message that is registered just after its session was lost, and that the client library still takes, must not wait until
// its ctx ends.
func TestPublishOnASessionThatWasJustLost(t *testing.T) {
	c, err := New(Config{URLs: []string{testserver.RequireNATS(t).URL()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	subject := testserver.Namespace()
	if _, err := s.NATS.Subscribe(subject, func(*nats.Msg) {}); err != nil { // which never answers
		t.Fatal(err)
	}
	c.lost(s.sock, nil) // the library does not know yet
	c.live.Store(s)     // as a publisher has seen it a moment before
	if _, err := c.Publish(ctx, nats.NewMsg(subject)); !errors.Is(err, ErrIndeterminate) || ctx.Err() != nil {
		t.Errorf("Publish: %v, want ErrIndeterminate before ctx ends", err)
	}
	c.live.Store(nil)
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}
