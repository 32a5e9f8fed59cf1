package natsresults_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/natsresults"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// server starts an embedded server for one test.
func server(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	o.Logger = quiet()
	srv, err := embedded.Open(testwait.Long(t), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(testwait.Long(t)); err != nil {
			t.Errorf("closing the server: %v", err)
		}
	})
	return srv
}

// raw returns the bare client library, connected to a server.
func raw(t testing.TB, srv *embedded.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// rawStream makes a stream with the bare client library.
func rawStream(t testing.TB, srv *embedded.Server, c jetstream.StreamConfig) jetstream.JetStream {
	t.Helper()
	js := raw(t, srv)
	if _, err := js.CreateStream(testwait.Long(t), c); err != nil {
		t.Fatal(err)
	}
	return js
}

// open makes a store and closes it at the end of the test.
func open(t testing.TB, c natsresults.Config) *natsresults.Store {
	t.Helper()
	if c.Logger == nil {
		c.Logger = quiet()
	}
	s, err := natsresults.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// done returns a terminal record of task i as a consumer saves it.
func done(node string, i int64) resultstore.Record {
	return resultstore.Record{
		ID: task.ID(fmt.Sprintf("task-%d", i)), Name: "add", State: task.StateSucceeded, Deliveries: 1,
		ContentType: "application/json", Result: []byte("3"), NodeID: "consumer", ReplyTo: node,
		StartedAt: time.UnixMilli(1_700_000_000_000).UTC(), FinishedAt: time.UnixMilli(1_700_000_000_005).UTC(),
	}
}

func save(t testing.TB, s *natsresults.Store, r resultstore.Record) {
	t.Helper()
	if err := s.Save(testwait.Long(t), r); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func wantLoad(t testing.TB, s *natsresults.Store, want resultstore.Record) {
	t.Helper()
	got, err := s.Load(testwait.Long(t), want.ID)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record loaded (-want +got):\n%s", diff)
	}
}

func TestNewNamesEveryProblemAndNoPassword(t *testing.T) {
	_, err := natsresults.New(natsresults.Config{
		Connect:   natsconnect.Config{URLs: []string{"nats://me:hunter2@localhost:bad"}},
		Namespace: "a.b", TTL: -1, MaxResult: -1, Buffer: -1, Replicas: 6,
	})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"URL", "Namespace", "TTL", "MaxResult", "Buffer", "Replicas"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
}

func TestWrongPasswordIsToldAtOnceAndNotShown(t *testing.T) {
	srv := testserver.RequireNATS(t)
	s := open(t, natsresults.Config{Connect: natsconnect.Config{URLs: []string{strings.Replace(srv.URL(), srv.Password(), "hunter2", 1)}}})
	_, notify := s.Notify(testwait.Long(t), "node")
	for call, err := range map[string]error{"Save": s.Save(testwait.Long(t), done("", 1)), "Notify": notify} {
		if !errors.Is(err, resultstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with a wrong password: %v, want ErrUnavailable before ctx ends", call, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error of %s holds the password: %v", call, err)
		}
	}
}

// The store works over TLS and sends no record to a server with an unknown authority.
func TestTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnNATS(t, testserver.NATSConfig{TLS: files})
	config := func(c *tls.Config) natsresults.Config {
		return natsresults.Config{Connect: natsconnect.Config{URLs: []string{srv.TLSURL()}, TLS: c}}
	}
	s := open(t, config(trusting))
	save(t, s, done("", 1))
	wantLoad(t, s, done("", 1))

	stranger := open(t, config(nil))
	testwait.UntilNil(t, "Save on a server of an unknown authority is ErrUnavailable because of its certificate", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := stranger.Save(ctx, done("", 2))
		if !errors.Is(err, resultstore.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}

// A stream that was deleted is made again without a restart of the store.
func TestStreamThatWasDeleted(t *testing.T) {
	srv := server(t, embedded.Options{})
	s := open(t, natsresults.Config{Connect: natsconnect.Config{InProcess: srv}})
	js := raw(t, srv)
	save(t, s, done("", 1))
	remove := func() {
		if err := js.DeleteStream(testwait.Long(t), "SWJRESULTS_default"); err != nil {
			t.Fatal(err)
		}
	}
	// A server that still removes the files of the old stream cannot make the new one and reports
	// ErrUnavailable.
	settled := func(f func() error) (err error) {
		testwait.Until(t, "an end of the old stream's files", func() bool { err = f(); return !errors.Is(err, resultstore.ErrUnavailable) })
		return err
	}
	remove()
	if err := settled(func() error { _, err := s.Load(testwait.Long(t), "task-1"); return err }); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("Load after the stream was deleted: %v, want ErrNotFound", err)
	}
	remove()
	if err := settled(func() error { return s.Delete(testwait.Long(t), "task-1") }); err != nil {
		t.Errorf("Delete after the stream was deleted: %v", err)
	}
	remove()
	if err := settled(func() error { return s.Save(testwait.Long(t), done("", 2)) }); err != nil {
		t.Errorf("Save after the stream was deleted: %v", err)
	}
	wantLoad(t, s, done("", 2))
}

// A record above the server's limit is refused with an error that names the setting to change.
func TestServerTakesLess(t *testing.T) {
	// plus one MiB
	s := open(t, natsresults.Config{Connect: natsconnect.Config{InProcess: server(t, embedded.Options{MaxBody: 1})}})
	r := done("", 1)
	r.Result = make([]byte, 3<<20)
	if err := s.Save(testwait.Long(t), r); !errors.Is(err, resultstore.ErrTooLarge) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("Save of more than the server takes: %v, want ErrTooLarge that names max_payload", err)
	}
	if _, err := s.Load(testwait.Long(t), r.ID); !errors.Is(err, resultstore.ErrNotFound) {
		t.Errorf("Load of what was refused: %v, want ErrNotFound", err)
	}
}

// A message that is not a record of the task is neither returned nor overwritten.
func TestForeignMessages(t *testing.T) {
	srv := server(t, embedded.Options{})
	s := open(t, natsresults.Config{Connect: natsconnect.Config{InProcess: srv}})
	save(t, s, done("", 1))
	js := raw(t, srv)
	for id, body := range map[string]string{"nonsense": "nonsense", "empty": "", "other": "\x83\x00\x01\x01\xa1x\x03\xa9succeeded"} {
		if _, err := js.Publish(testwait.Long(t), "swj.default.R."+id, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(testwait.Long(t), task.ID(id)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Load of %s: %v, want ErrMalformed", id, err)
		}
		r := done("", 1)
		r.ID = task.ID(id)
		if err := s.Save(testwait.Long(t), r); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Save over %s: %v, want ErrMalformed", id, err)
		}
	}
}

// Receive returns an error for a foreign message on the node's subject, and the stream continues.
func TestForeignNotifications(t *testing.T) {
	srv := server(t, embedded.Options{})
	s := open(t, natsresults.Config{Connect: natsconnect.Config{InProcess: srv}})
	n, err := s.Notify(testwait.Long(t), "node.1")
	if err != nil {
		t.Fatal(err)
	}
	js := raw(t, srv)
	if err := js.Conn().Publish("swj.default.N.node=2E1", []byte("nonsense")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Receive(testwait.Long(t)); !errors.Is(err, resultstore.ErrMalformed) {
		t.Errorf("Receive of nonsense: %v, want ErrMalformed", err)
	}
	save(t, s, done("node.1", 1))
	if r, err := n.Receive(testwait.Long(t)); err != nil || r.ID != "task-1" {
		t.Errorf("Receive after nonsense: %v, %v", r.ID, err)
	}
}

// With three servers a record survives the loss of the stream's leader, and every store reads it
// right after Save.
func TestCluster(t *testing.T) {
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	stores := make([]*natsresults.Store, len(c.Nodes))
	for i, n := range c.Nodes {
		stores[i] = open(t, natsresults.Config{Connect: natsconnect.Config{URLs: append([]string{n.URL()}, c.URLs()...)}, Replicas: 3})
	}
	for i := range int64(60) {
		save(t, stores[i%3], done("", i))
		wantLoad(t, stores[(i+1)%3], done("", i))
	}
	leader, err := c.Leader(testwait.Long(t), "SWJRESULTS_default")
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	for i := range int64(60) {
		wantLoad(t, stores[i%3], done("", i))
	}
	r := done("", 100)
	for ctx := testwait.Long(t); ; {
		if err := stores[0].Save(ctx, r); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("Save after the leader was killed: %v", err)
		}
	}
	wantLoad(t, stores[1], r)
}
