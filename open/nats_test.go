package open_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/resultstore"
)

func TestNATS(t *testing.T) {
	n := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	in := opened(t, n.URL()+"?replicas=1&namespace="+ns, open.Options{})
	out := opened(t, n.URL(), open.Options{Namespace: ns, Name: "a name"})
	roundTrip(t, out, in)
	if err := out.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	s := opened(t, "nats://nobody:"+secret+"@"+n.Addr(), open.Options{})
	refused(t, s, broker.ErrAccess, "NATS at "+n.Addr()+": Authorization Violation", "correct user and password")
}

func TestNATSTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := testserver.OwnNATS(t, testserver.NATSConfig{TLS: files, RequireClientCert: true})
	url := n.TLSURL() + "?ca=" + files.CA + "&cert=" + files.ClientCert + "&key=" + files.ClientKey
	roundTrip(t, opened(t, url, open.Options{}), opened(t, url+"&server_name=localhost", open.Options{}))
	stranger(t, n.TLSURL(), n.Password())
}

// TestEmbedded runs a server in this process for all parts of a Swarm. The server ends with the
// Swarm. Unfinished tasks exist again after the next start.
func TestEmbedded(t *testing.T) {
	dir := t.TempDir()
	url := "nats-embedded://" + dir + "?sync=always"
	s := opened(t, url, open.Options{})
	roundTrip(t, s, s)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if err := broker.Declare(t.Context(), s.Broker, broker.Queue{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Broker.Publish(t.Context(), "kept", &broker.Message{ID: "1"}); err != nil {
		t.Fatal(err)
	}

	_, err := open.Open(t.Context(), url, open.Options{})
	if !errors.Is(err, embedded.ErrLocked) || !strings.Contains(err.Error(), "?listen=127.0.0.1:0") {
		t.Errorf("a second server on the directory: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = opened(t, "nats-embedded://"+dir+"?sync=50ms", open.Options{})
	i, ok := capability.As[broker.Inspector](s.Broker)
	if !ok {
		t.Fatal("the broker tells nothing of its queues")
	}
	if stats, err := i.Stats(t.Context(), "kept"); err != nil || stats.Ready != 1 {
		t.Errorf("after the restart the queue has %+v, %v", stats, err)
	}
}

// TestEmbeddedJoins shows that a directory with a listener can be opened again, here and in other
// processes. The second Swarm joins the running server.
func TestEmbeddedJoins(t *testing.T) {
	url := "nats-embedded://" + t.TempDir() + "?listen=127.0.0.1:0"
	first := opened(t, url, open.Options{})
	second, err := open.Open(t.Context(), url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = second.Close(ctx) // its server has ended
	})
	roundTrip(t, first, second)
	if err := second.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(t, second, broker.ErrUnavailable, "no embedded NATS server answers at 127.0.0.1:", "open the directory again")
}

// TestEmbeddedAlone shows that closing a single part also stops the server.
func TestEmbeddedAlone(t *testing.T) {
	dir := t.TempDir()
	url := "nats-embedded://" + dir
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := open.Broker(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := capability.As[broker.BatchPublisher](b); !ok {
		t.Error("the broker has lost its capabilities")
	}
	if err := errors.Join(broker.Declare(ctx, b, broker.Queue{Name: "q"}), b.Close(ctx), b.Close(ctx)); err != nil {
		t.Errorf("broker: %v", err)
	}
	s, err := open.Results(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := capability.As[resultstore.Notifier](s); !ok {
		t.Error("the result store has lost its capabilities")
	}
	if _, err := s.Load(ctx, "x"); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("Load: %v", err)
	}
	if err := errors.Join(s.Close(ctx), s.Close(ctx)); err != nil {
		t.Errorf("results: %v", err)
	}
	bus, err := open.Events(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := bus.Subscribe(ctx, events.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sub.Close(ctx), bus.Close(ctx), bus.Close(ctx)); err != nil {
		t.Errorf("events: %v", err)
	}
	opened(t, url, open.Options{}) // the directory is free
}

// TestEmbeddedNoDirectory shows that an unusable directory is an error and leaves nothing open.
func TestEmbeddedNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Open(t.Context(), "nats-embedded://"+file+"/below", open.Options{}); err == nil {
		t.Error("a directory below a file was opened")
	}
}
