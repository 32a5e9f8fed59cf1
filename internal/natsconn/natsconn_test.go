package natsconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func connect(t testing.TB, cfg natsconnect.Config) *natsconn.Conn {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{testserver.RequireNATS(t).URL()}
	}
	c, err := natsconn.New(cfg, "", nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx) // the server may have ended with the test
	})
	return c
}

// stream makes a stream with subjects name.> and returns name.
func stream(t testing.TB, c *natsconn.Conn, change func(cfg *jetstream.StreamConfig)) string {
	t.Helper()
	name := testserver.Namespace()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgsPerSubject: 1}
	if change != nil {
		change(&cfg)
	}
	if _, err := c.EnsureStream(testwait.Long(t), cfg, nil); err != nil {
		t.Fatalf("EnsureStream: %v", err)
	}
	return name
}

func TestNewReportsEverythingAndNoSecret(t *testing.T) {
	_, err := natsconn.New(natsconnect.Config{
		URLs:        []string{"nats://u:pass-word@host/path", "http://u:pass-word@host", "tls://u:pa%zz@host", "nats://u:pass-word@", "nats://host", "tls://host"},
		Credentials: "a", NKeySeed: "b", PingInterval: -1, DialTimeout: -1,
	}, "", nil)
	if err == nil {
		t.Fatal("New took a configuration that is wrong throughout")
	}
	for _, want := range []string{"URL 1", "URL 2", "URL 3", "URL 4", "mixed", "credentials", "ping interval", "dial timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
	for _, secret := range []string{"pass-word", "zz"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds %q: %v", secret, err)
		}
	}
	if _, err := natsconn.New(natsconnect.Config{}, "", nil); err == nil {
		t.Error("New took a configuration without a server")
	}
}

func TestNewDoesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	c, err := natsconn.New(natsconnect.Config{URLs: []string{"nats://127.0.0.1:1"}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after New: %v", err)
	}
	for range 2 {
		if err := c.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close of what was never used: %v", err)
		}
	}
	if _, err := c.Session(testwait.Long(t)); !errors.Is(err, natsconn.ErrClosed) {
		t.Errorf("Session after Close: %v, want ErrClosed", err)
	}
	if _, err := c.Publish(testwait.Long(t), nats.NewMsg("a")); !errors.Is(err, natsconn.ErrClosed) {
		t.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
}

func TestUnavailableUntilCtxEnds(t *testing.T) {
	c := connect(t, natsconnect.Config{URLs: []string{"nats://127.0.0.1:1"}})
	if _, err := c.Session(testwait.Brief(t)); !errors.Is(err, natsconn.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Session without a server: %v", err)
	}
	if _, err := c.Publish(testwait.Brief(t), nats.NewMsg("a")); !errors.Is(err, natsconn.ErrUnavailable) {
		t.Errorf("Publish without a server: %v, want ErrUnavailable", err)
	}
	if err := c.Flush(testwait.Brief(t)); !errors.Is(err, natsconn.ErrUnavailable) {
		t.Errorf("Flush without a server: %v, want ErrUnavailable", err)
	}
}

func TestCloseEndsAHandshake(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := connect(t, natsconnect.Config{URLs: []string{"nats://" + l.Addr().String()}, DialTimeout: 50 * time.Second})
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Session(testwait.Long(t))
		waiting <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	begin := time.Now()
	if err := c.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-waiting; !errors.Is(err, natsconn.ErrClosed) {
		t.Errorf("Session at Close: %v, want ErrClosed", err)
	}
}

func TestPublish(t *testing.T) {
	c := connect(t, natsconnect.Config{})
	name := stream(t, c, nil)
	ctx := testwait.Long(t)
	msg := func(subject string, header ...string) *nats.Msg {
		m := nats.NewMsg(name + "." + subject)
		for i := 0; i+1 < len(header); i += 2 {
			m.Header[header[i]] = []string{header[i+1]}
		}
		return m
	}
	if ack, err := c.Publish(ctx, msg("a", "Nats-Msg-Id", "1")); err != nil || ack.Sequence != 1 || ack.Duplicate {
		t.Errorf("Publish: %+v, %v", ack, err)
	}
	if ack, err := c.Publish(ctx, msg("a", "Nats-Msg-Id", "1")); err != nil || ack.Sequence != 1 || !ack.Duplicate {
		t.Errorf("Publish of a repeated id: %+v, %v", ack, err)
	}
	if _, err := c.Publish(ctx, msg("a", "Nats-Expected-Last-Subject-Sequence", "7")); !errors.Is(err, natsconn.ErrWrongSequence) {
		t.Errorf("Publish that expects another sequence: %v, want ErrWrongSequence", err)
	}
	if _, err := c.Publish(ctx, nats.NewMsg("nobody."+name)); !errors.Is(err, natsconn.ErrNoStream) {
		t.Errorf("Publish to a subject of no stream: %v, want ErrNoStream", err)
	}
	large := msg("large")
	large.Data = make([]byte, 9<<20)
	if _, err := c.Publish(ctx, large); !errors.Is(err, natsconn.ErrTooLarge) {
		t.Errorf("Publish of 9 MB: %v, want ErrTooLarge", err)
	}
	const n = 10_000 // more than window
	pubs := make([]natsconn.Pub, n)
	for i := range pubs {
		pubs[i].Msg = msg(fmt.Sprint(i))
	}
	pubs[n/2].Msg = nats.NewMsg("nobody." + name)
	c.PublishBatch(ctx, pubs)
	for i := range pubs {
		switch bad := i == n/2; {
		case bad && !errors.Is(pubs[i].Err, natsconn.ErrNoStream):
			t.Errorf("message %d: %v, want ErrNoStream", i, pubs[i].Err)
		case !bad && pubs[i].Err != nil:
			t.Fatalf("message %d: %v", i, pubs[i].Err)
		case !bad && i > 0 && i != n/2+1 && pubs[i].Ack.Sequence != pubs[i-1].Ack.Sequence+1:
			t.Fatalf("message %d has sequence %d after %d", i, pubs[i].Ack.Sequence, pubs[i-1].Ack.Sequence)
		}
	}
}

func TestStreamLimits(t *testing.T) {
	c := connect(t, natsconnect.Config{})
	name := stream(t, c, func(cfg *jetstream.StreamConfig) {
		cfg.Discard, cfg.DiscardNewPerSubject, cfg.MaxMsgs, cfg.MaxMsgSize = jetstream.DiscardNew, true, 2, 10
	})
	ctx := testwait.Long(t)
	for i, tt := range []struct {
		subject string
		want    error
	}{{"a", nil}, {"a", natsconn.ErrOccupied}, {"b", nil}, {"c", natsconn.ErrBlocked}} {
		if _, err := c.Publish(ctx, nats.NewMsg(name+"."+tt.subject)); !errors.Is(err, tt.want) {
			t.Errorf("message %d: %v, want %v", i, err, tt.want)
		}
	}
	m := nats.NewMsg(name + ".x")
	m.Data = make([]byte, 11)
	if _, err := c.Publish(ctx, m); !errors.Is(err, natsconn.ErrTooLarge) {
		t.Errorf("a message above the stream's limit: %v, want ErrTooLarge", err)
	}
}

func TestAPI(t *testing.T) {
	c := connect(t, natsconnect.Config{})
	name := stream(t, c, nil)
	ctx := testwait.Long(t)
	for _, s := range []string{"a", "b", "c"} {
		m := nats.NewMsg(name + ".x." + s)
		m.Data, m.Header["K"] = []byte(s), []string{"v"}
		if _, err := c.Publish(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := c.GetLast(ctx, name, name+".x.b"); err != nil || st.Seq != 2 || string(st.Data) != "b" || st.Header["K"][0] != "v" {
		t.Errorf("GetLast: %+v, %v", st, err)
	}
	if st, err := c.GetNext(ctx, name, name+".x.*", 3); err != nil || st.Subject != name+".x.c" {
		t.Errorf("GetNext: %+v, %v", st, err)
	}
	if _, err := c.GetNext(ctx, name, name+".x.*", 4); !errors.Is(err, natsconn.ErrNotFound) {
		t.Errorf("GetNext beyond the end: %v, want ErrNotFound", err)
	}
	if n, err := c.Subjects(ctx, name, name+".x.*"); err != nil || n != 3 {
		t.Errorf("Subjects: %d, %v", n, err)
	}
	if err := c.DeleteSeq(ctx, name, 1); err != nil {
		t.Errorf("DeleteSeq: %v", err)
	}
	if err := c.DeleteSeq(ctx, name, 1); !errors.Is(err, natsconn.ErrNotFound) {
		t.Errorf("a second DeleteSeq: %v, want ErrNotFound", err)
	}
	if n, err := c.Purge(ctx, name, name+".x.b"); err != nil || n != 1 {
		t.Errorf("Purge: %d, %v", n, err)
	}
	if n, err := c.Subjects(ctx, name, name+".none.*"); err != nil || n != 0 {
		t.Errorf("Subjects of none: %d, %v", n, err)
	}
	if _, err := c.GetLast(ctx, "NO"+name, "x"); !errors.Is(err, natsconn.ErrNoStream) {
		t.Errorf("GetLast of a missing stream: %v, want ErrNoStream", err)
	}
	err := c.API(ctx, "CONSUMER.INFO."+name+".none", struct{}{}, nil)
	if !errors.Is(err, natsconn.ErrNoConsumer) || natsconn.Code(err) == 0 {
		t.Errorf("info of a missing consumer: %v, want ErrNoConsumer", err)
	}
}

// TestTake shows that of several concurrent calls for one message exactly one returns true, and
// that a later message of the subject stays.
func TestTake(t *testing.T) {
	c := connect(t, natsconnect.Config{})
	name := stream(t, c, nil)
	ctx := testwait.Long(t)
	publish := func() uint64 {
		t.Helper()
		ack, err := c.Publish(ctx, &nats.Msg{Subject: name + ".x", Data: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	first := publish()
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ok, err := c.Take(ctx, name, first)
			if err != nil {
				t.Errorf("Take: %v", err)
			}
			if ok {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d of 8 have taken one message", taken.Load())
	}
	second := publish()
	if ok, err := c.Take(ctx, name, first); ok || err != nil {
		t.Errorf("Take of a message that is gone: %t, %v", ok, err)
	}
	if st, err := c.GetLast(ctx, name, name+".x"); err != nil || st.Seq != second {
		t.Errorf("the later message: %+v, %v", st, err)
	}
	if _, err := c.Take(ctx, "NO"+name, 1); !errors.Is(err, natsconn.ErrNoStream) {
		t.Errorf("Take in a missing stream: %v, want ErrNoStream", err)
	}
}

func TestEnsureStream(t *testing.T) {
	c := connect(t, natsconnect.Config{})
	name := stream(t, c, nil)
	want := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, MaxMsgsPerSubject: 5}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			info, err := c.EnsureStream(testwait.Long(t), want, nil)
			if err != nil || info.Config.MaxMsgsPerSubject != 1 {
				t.Errorf("EnsureStream of one that exists: %+v, %v", info, err)
			}
		})
	}
	wg.Wait()
	info, err := c.EnsureStream(testwait.Long(t), want, func(have jetstream.StreamConfig) (jetstream.StreamConfig, bool) {
		have.MaxMsgsPerSubject = 7
		return have, true
	})
	if err != nil || info.Config.MaxMsgsPerSubject != 7 {
		t.Errorf("EnsureStream with a change: %+v, %v", info, err)
	}
	fresh := testserver.Namespace()
	for range 8 {
		wg.Go(func() {
			if _, err := c.EnsureStream(testwait.Long(t), jetstream.StreamConfig{Name: fresh, Storage: jetstream.MemoryStorage}, nil); err != nil {
				t.Errorf("EnsureStream of one that several make: %v", err)
			}
		})
	}
	wg.Wait()
}

// states records the calls of Watch.
type states struct {
	mu   sync.Mutex
	list []broker.ConnState
	errs []error
}

func (s *states) note(st broker.ConnState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.errs = append(s.list, st), append(s.errs, err)
}

func (s *states) last() (broker.ConnState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[len(s.list)-1], s.errs[len(s.errs)-1]
}

func TestReconnect(t *testing.T) {
	srv := testserver.OwnNATS(t, testserver.NATSConfig{})
	c := connect(t, natsconnect.Config{URLs: []string{srv.URL()}})
	name := stream(t, c, func(cfg *jetstream.StreamConfig) { cfg.Storage = jetstream.FileStorage })
	var w states
	defer c.Watch(w.note)()
	s1, err := c.Session(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	unanswered := make(chan error, 1)
	srv.Pause()
	go func() {
		_, err := c.Publish(testwait.Long(t), nats.NewMsg(name+".a"))
		unanswered <- err
	}()
	question := make(chan error, 1)
	go func() {
		question <- c.Do(testwait.Long(t), func(ctx context.Context, s *natsconn.Session) error {
			_, err := s.NATS.RequestWithContext(ctx, "nobody.answers", nil)
			return err
		})
	}()
	if _, err := c.Publish(testwait.Brief(t), nats.NewMsg(name+".b")); !errors.Is(err, natsconn.ErrIndeterminate) {
		t.Errorf("Publish to a paused server: %v, want ErrIndeterminate", err)
	}
	srv.Kill()
	if err := <-unanswered; !errors.Is(err, natsconn.ErrIndeterminate) {
		t.Errorf("Publish at the loss of the connection: %v, want ErrIndeterminate", err)
	}
	if err := <-question; !errors.Is(err, natsconn.ErrIndeterminate) {
		t.Errorf("Do at the loss of the connection: %v, want ErrIndeterminate", err)
	}
	<-s1.Done()
	testwait.Until(t, "Disconnected with a reason", func() bool {
		st, err := w.last()
		return st == broker.Disconnected && err != nil
	})
	if err := srv.Restart(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	s2, err := c.Session(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	if s2.Gen != s1.Gen+1 || s2.NATS != s1.NATS || s2.MaxPayload != 8<<20 || !s2.AtLeast(2, 12) || s2.AtLeast(99, 0) {
		t.Errorf("the second session is %+v", s2)
	}
	if _, err := c.Publish(testwait.Long(t), nats.NewMsg(name+".c")); err != nil {
		t.Errorf("Publish after the reconnect: %v", err)
	}
	testwait.Until(t, "Connected", func() bool { st, _ := w.last(); return st == broker.Connected })
}

// TestAPausedServerHoldsUpNobody shows that publishes return when their ctx ends, although far more
// is written than the network accepts.
func TestAPausedServerHoldsUpNobody(t *testing.T) {
	srv := testserver.OwnNATS(t, testserver.NATSConfig{})
	c := connect(t, natsconnect.Config{URLs: []string{srv.URL()}})
	name := stream(t, c, nil)
	srv.Pause()
	defer srv.Resume()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			ctx := testwait.Brief(t)
			m := nats.NewMsg(fmt.Sprintf("%s.%d", name, i))
			m.Data = make([]byte, 1<<20)
			for ctx.Err() == nil {
				_, err := c.Publish(ctx, m)
				if !errors.Is(err, natsconn.ErrIndeterminate) && !errors.Is(err, natsconn.ErrUnavailable) {
					t.Errorf("Publish to a paused server: %v", err)
				}
			}
			if d, _ := ctx.Deadline(); time.Since(d) > 20*time.Second {
				t.Errorf("Publish returned %v after its ctx had ended", time.Since(d))
			}
		})
	}
	wg.Wait()
	begin := time.Now()
	_ = c.Close(testwait.Brief(t)) // the server cannot answer
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// limited starts a server with a user whose permission to publish is limited, and returns its
// address. jetstream says whether the server has JetStream.
func limited(t *testing.T, jetstream bool) string {
	t.Helper()
	program, err := testserver.NATSProgram(testwait.Long(t))
	if errors.Is(err, testserver.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	storage := ""
	if jetstream {
		storage = fmt.Sprintf("jetstream { store_dir: %q }", dir)
	}
	conf := fmt.Sprintf(`listen: %q
%s
authorization { users: [ { user: limited, password: secret-word, permissions: { publish: { deny: ["forbidden.>", "$JS.API.CONSUMER.>"] } } } ] }
`, addr, storage)
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	testwait.Until(t, "the server", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

func TestAccess(t *testing.T) {
	addr := limited(t, true)
	c := connect(t, natsconnect.Config{URLs: []string{"nats://limited:secret-word@" + addr}})
	if _, err := c.Publish(testwait.Long(t), nats.NewMsg("forbidden.a")); !errors.Is(err, natsconn.ErrAccess) || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("Publish to a forbidden subject: %v, want ErrAccess", err)
	}
	err := c.API(testwait.Long(t), "CONSUMER.INFO.S.c", struct{}{}, nil)
	if !errors.Is(err, natsconn.ErrAccess) {
		t.Errorf("a forbidden request: %v, want ErrAccess", err)
	}
	wrong := connect(t, natsconnect.Config{URLs: []string{"nats://limited:wrong-word@" + addr}})
	if _, err := wrong.Session(testwait.Long(t)); !errors.Is(err, natsconn.ErrAccess) || strings.Contains(err.Error(), "wrong-word") {
		t.Errorf("Session with a wrong password: %v, want ErrAccess", err)
	}
	nobody := connect(t, natsconnect.Config{URLs: []string{"nats://" + addr}})
	if _, err := nobody.NATS(testwait.Long(t)); !errors.Is(err, natsconn.ErrAccess) {
		t.Errorf("NATS without a password: %v, want ErrAccess", err)
	}
	missing := connect(t, natsconnect.Config{URLs: []string{"nats://" + addr}, NKeySeed: filepath.Join(t.TempDir(), "none")})
	if _, err := missing.JetStream(testwait.Long(t)); !errors.Is(err, natsconn.ErrAccess) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("JetStream with a seed file that is missing: %v, want ErrAccess", err)
	}
	creds := connect(t, natsconnect.Config{URLs: []string{"nats://" + addr}, Credentials: filepath.Join(t.TempDir(), "none")})
	if _, err := creds.Session(testwait.Brief(t)); err == nil {
		t.Error("Session with a credentials file that is missing")
	}
}

func TestWithoutJetStream(t *testing.T) {
	srv := testserver.OwnNATS(t, testserver.NATSConfig{})
	// the system account, which has no JetStream
	account := strings.Replace(srv.URL(), srv.User()+":", "admin:", 1)
	c := connect(t, natsconnect.Config{URLs: []string{account}})
	_, err := c.EnsureStream(testwait.Brief(t), jetstream.StreamConfig{Name: "s"}, nil)
	if !errors.Is(err, natsconn.ErrAccess) && !errors.Is(err, natsconn.ErrUnavailable) {
		t.Errorf("EnsureStream without JetStream: %v, want ErrAccess or ErrUnavailable", err)
	}
}

func TestTLSIsInsistedOn(t *testing.T) {
	// the server has no TLS
	c := connect(t, natsconnect.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	if _, err := c.Session(testwait.Brief(t)); !errors.Is(err, natsconn.ErrUnavailable) || !errors.Is(err, nats.ErrSecureConnWanted) {
		t.Errorf("Session with TLS to a server without: %v", err)
	}
}

// pipe is a server in this process whose connections lead to another server.
type pipe struct{ addr string }

func (p pipe) InProcessConn() (net.Conn, error) { return net.Dial("tcp", p.addr) }

func TestInProcess(t *testing.T) {
	addr := limited(t, true)
	c, err := natsconn.New(natsconnect.Config{InProcess: pipe{addr}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(testwait.Long(t)) }()
	// the handshake reaches the password
	if _, err := c.Session(testwait.Long(t)); !errors.Is(err, natsconn.ErrAccess) {
		t.Errorf("Session through a provider: %v", err)
	}
	if _, err := natsconn.New(natsconnect.Config{InProcess: pipe{addr}, URLs: []string{"nats://host"}}, "", nil); err == nil {
		t.Error("New took a provider and URLs")
	}
}

// A deletion that was sent without an answer returns ErrIndeterminate, even if no connection exists
// afterwards.
func TestDeletionWithoutAnAnswerIsIndeterminate(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	p := testserver.NewProxy(t, srv.Addr())
	c, err := natsconn.New(natsconnect.Config{URLs: []string{p.URL(srv.URL())}, PingInterval: 100 * time.Millisecond, DialTimeout: 300 * time.Millisecond}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }() // no server is left to answer
	first, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.Session(first)
	if err != nil {
		t.Fatal(err)
	}
	p.BlackHole(true, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-s.Done()
		<-time.After(300 * time.Millisecond) // the next attempt waits for a connection
		cancel()
	}()
	err = c.DeleteSeq(ctx, testserver.Namespace(), 1)
	if !errors.Is(err, natsconn.ErrIndeterminate) || errors.Is(err, natsconn.ErrUnavailable) {
		t.Errorf("DeleteSeq: %v, want ErrIndeterminate alone", err)
	}
}
