package natsconn_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// A refused request fails all running requests. A Take beside it may have removed its message, so
// its outcome is open: a caller that takes it for refused would lose the message.
func TestTakeBesideRefusedRequest(t *testing.T) {
	addr := limited(t, false)
	c := connect(t, natsconnect.Config{URLs: []string{"nats://limited:secret-word@" + addr}})
	server := connect(t, natsconnect.Config{URLs: []string{"nats://limited:secret-word@" + addr}})
	nc, err := server.NATS(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	// a slow server: it removes the message, and its answer comes late
	removed := make(chan struct{})
	if _, err := nc.Subscribe("$JS.API.STREAM.MSG.DELETE.S", func(*nats.Msg) { close(removed) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	go func() {
		_, err := c.Take(testwait.Long(t), "S", 1)
		taken <- err
	}()
	<-removed
	if err := c.API(testwait.Long(t), "CONSUMER.INFO.S.c", struct{}{}, nil); !errors.Is(err, natsconn.ErrAccess) {
		t.Fatalf("a forbidden request: %v, want ErrAccess", err)
	}
	if err := <-taken; !errors.Is(err, natsconn.ErrIndeterminate) {
		t.Errorf("Take beside a refused request: %v, want ErrIndeterminate", err)
	}
}
