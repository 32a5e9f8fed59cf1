package testserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// dialNATS connects to a URL. The connection reconnects without limit.
func dialNATS(tb testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	tb.Helper()
	conn, err := nats.Connect(url, append(opts, nats.Timeout(5*time.Second), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		closed := make(chan struct{})
		conn.SetClosedHandler(func(*nats.Conn) { close(closed) })
		conn.Close()
		<-closed
	})
	js, err := jetstream.New(conn)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// makeStream creates a stream on disk with one subject of the same name, and stores a message in
// it. It retries the publish: in a cluster a server may not know yet that the new stream listens to
// the subject.
func makeStream(tb testing.TB, js jetstream.JetStream, name string, replicas int) {
	tb.Helper()
	ctx := deadline(tb, 30*time.Second)
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err == nil {
		_, err = js.Publish(ctx, name, []byte(name), jetstream.WithRetryAttempts(100), jetstream.WithRetryWait(100*time.Millisecond))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// wantStored fails the test unless the message of makeStream can be read within 30 seconds. It
// retries, because the read fails during an election.
func wantStored(tb testing.TB, js jetstream.JetStream, name string) {
	tb.Helper()
	ctx := deadline(tb, 30*time.Second)
	for {
		err := readStored(ctx, js, name)
		if err == nil {
			return
		}
		if ctx.Err() != nil || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
			tb.Fatalf("the message of stream %s: %v; it was stored", name, err)
		}
	}
}

func readStored(ctx context.Context, js jetstream.JetStream, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a request may never be answered
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	m, err := s.GetMsg(ctx, 1)
	if err == nil && string(m.Data) != name {
		err = fmt.Errorf("the message is %q", m.Data)
	}
	return err
}

func TestNATSNeedsItsPassword(t *testing.T) {
	s := testserver.RequireNATS(t)
	if conn, err := nats.Connect("nats://" + s.Addr()); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a password: %v, want %v", err, nats.ErrAuthorization)
		conn.Close()
	}
	if !strings.Contains(s.URL(), s.User()+":"+s.Password()+"@"+s.Addr()) {
		t.Error("the URL lacks the user, the password or the address")
	}
	if _, err := dialNATS(t, s.URL()).AccountInfo(deadline(t, 10*time.Second)); err != nil {
		t.Errorf("with the password of the URL: %v", err)
	}
	if s.TLSURL() != "" {
		t.Error("a server without TLS has an address for it")
	}
}

// Data stored by JetStream survives a restart in good order and SIGKILL, on the same URL.
func TestNATSRestartKeepsStream(t *testing.T) {
	s := testserver.RequireNATS(t)
	for name, down := range map[string]func(){
		"restart": func() {},
		"killed":  s.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			stream, pid := testserver.Namespace(), s.PID()
			js := dialNATS(t, s.URL())
			makeStream(t, js, stream, 1)
			down()
			if err := s.Restart(deadline(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if s.PID() == pid {
				t.Error("the server has the same process id as before")
			}
			wantStored(t, dialNATS(t, s.URL()), stream)
		})
	}
}

// RequireNATS returns a working server after a test killed, paused or stopped it.
func TestRequireNATSMends(t *testing.T) {
	for name, breakIt := range map[string]func(*testserver.NATS){
		"killed":  (*testserver.NATS).Kill,
		"paused":  (*testserver.NATS).Pause,
		"stopped": func(s *testserver.NATS) { _ = s.Stop(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			breakIt(testserver.RequireNATS(t))
			makeStream(t, dialNATS(t, testserver.RequireNATS(t).URL()), testserver.Namespace(), 1)
		})
	}
}

func TestNATSPauseSilences(t *testing.T) {
	s := testserver.RequireNATS(t)
	conn := dialNATS(t, s.URL()).Conn()
	if err := conn.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	reply := make(chan error, 1)
	go func() { reply <- conn.FlushTimeout(20 * time.Second) }()
	select {
	case err := <-reply:
		t.Errorf("a paused server answered within 300 ms: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Resume()
	select {
	case err := <-reply:
		if err != nil {
			t.Errorf("after Resume: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("no answer after Resume")
	}
}

func TestNATSCloseAllConnections(t *testing.T) {
	s := testserver.RequireNATS(t)
	lost := make(chan error, 1)
	conn := dialNATS(t, s.URL(), nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		select {
		case lost <- err:
		default:
		}
	})).Conn()
	if err := s.CloseAllConnections(deadline(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection was not closed")
	}
	testwait.UntilNil(t, "the client is back", func() error { return conn.FlushTimeout(time.Second) })
}

// A body of 5 MB passes, unless the configuration sets a lower limit: Conf comes last and wins.
func TestNATSConfIsAppliedLast(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 5<<20)
	for name, c := range map[string]struct {
		server *testserver.NATS
		want   error
	}{
		"default": {testserver.RequireNATS(t), nil},
		"1 MB":    {testserver.OwnNATS(t, testserver.NATSConfig{Conf: "max_payload: 1MB"}), nats.ErrMaxPayload},
	} {
		t.Run(name, func(t *testing.T) {
			js := dialNATS(t, c.server.URL())
			stream := testserver.Namespace()
			makeStream(t, js, stream, 1)
			if _, err := js.Publish(deadline(t, 30*time.Second), stream, body); !errors.Is(err, c.want) {
				t.Errorf("5 MB: %v, want %v", err, c.want)
			}
		})
	}
}

func TestNATSTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := testserver.OwnNATS(t, testserver.NATSConfig{TLS: files, RequireClientCert: true})
	for _, cert := range []bool{true, false} {
		cfg, err := files.ClientConfig(cert)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := nats.Connect(s.TLSURL(), nats.Secure(cfg))
		if (err == nil) != cert {
			t.Errorf("with client certificate %v: %v", cert, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	if conn, err := nats.Connect(s.URL()); err == nil {
		conn.Close()
		t.Error("a server with TLS took a client without")
	}
}

// Three servers form a cluster, a stream survives the loss of its leader, and the killed server
// rejoins.
func TestNATSCluster(t *testing.T) {
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	ctx := deadline(t, 90*time.Second)
	stream := testserver.Namespace()
	js := dialNATS(t, c.URL())
	makeStream(t, js, stream, 3)
	leader, err := c.Leader(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	for now := leader; now == leader; {
		if ctx.Err() != nil {
			t.Fatal("no new leader was elected")
		}
		if next, err := c.Leader(ctx, stream); err == nil {
			now = next
		}
	}
	wantStored(t, js, stream)
	if err := c.RestartNode(ctx, leader); err != nil {
		t.Fatal(err)
	}
	wantStored(t, dialNATS(t, c.URLs()[leader]), stream)
}
