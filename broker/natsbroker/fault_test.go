package natsbroker_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/natsbroker"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// publishAll publishes each message until it is confirmed.
func publishAll(t testing.TB, b *natsbroker.Broker, names []string) {
	t.Helper()
	ctx := testwait.Long(t)
	for _, id := range names {
		for {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := b.Publish(try, "q", message(id))
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil || !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrIndeterminate) {
				t.Errorf("Publish(%s): %v", id, err)
				return
			}
		}
	}
}

// underLoad publishes and consumes while fault runs, and expects that all confirmed messages are
// seen.
func underLoad(t *testing.T, url string, fault func()) *tally {
	t.Helper()
	const each, publishers = 400, 4
	ns := testserver.Namespace()
	pub := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: strings.Split(url, ",")}, Namespace: ns})
	con := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: strings.Split(url, ",")}, Namespace: ns})
	declare(t, pub)
	seen := newTally()
	ctx, cancel := context.WithCancel(testwait.Long(t))
	var wg sync.WaitGroup
	s := subscribe(t, con, broker.SubscribeOptions{Prefetch: 32, Lease: 2 * time.Second})
	for range 2 {
		wg.Go(func() { consume(ctx, s, seen) })
	}
	var pubs sync.WaitGroup
	for p := range publishers {
		pubs.Go(func() { publishAll(t, pub, ids(fmt.Sprint(p), each)) })
	}
	testwait.Until(t, "a quarter of the messages", func() bool { return seen.different() > each*publishers/4 })
	fault()
	pubs.Wait()
	testwait.Until(t, "all messages", func() bool { return seen.different() == each*publishers })
	nothingMore := seen.repeats()
	cancel()
	wg.Wait()
	t.Logf("%d repeats", nothingMore)
	return seen
}

func TestNoFaultNoRepeat(t *testing.T) {
	t.Parallel()
	if n := underLoad(t, testserver.RequireNATS(t).URL(), func() {}).repeats(); n != 0 {
		t.Errorf("%d messages were seen again though nothing happened", n)
	}
}

func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnNATS(t, testserver.NATSConfig{})
	underLoad(t, srv.URL(), func() {
		for range 3 {
			srv.Kill()
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatalf("Restart: %v", err)
			}
		}
	})
}

func TestServerIsPaused(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnNATS(t, testserver.NATSConfig{})
	underLoad(t, srv.URL(), func() {
		srv.Pause()
		b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}})
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if err := b.Publish(ctx, "q", message("never")); !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("Publish to a paused server: %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("Publish with a ctx of 300ms took %v", took)
		}
		srv.Resume()
	})
}

func TestConnectionsAreCutForAMoment(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	r := testserver.NewRelay(t, srv.Addr())
	underLoad(t, r.URL(srv.URL()), func() {
		for range 5 {
			r.Sever()
			<-time.After(20 * time.Millisecond)
		}
	})
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	p := testserver.NewProxy(t, srv.Addr())
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{p.URL(srv.URL())}, PingInterval: 100 * time.Millisecond, DialTimeout: 500 * time.Millisecond}})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 4})
	var mu sync.Mutex
	var states []broker.ConnState
	stop := b.Watch(func(st broker.ConnState, _ error) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, st)
	})
	defer stop()
	p.BlackHole(true, true)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	err := b.Publish(ctx, "q", message("a"))
	if !errors.Is(err, broker.ErrIndeterminate) && !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Publish into a black hole: %v, want ErrIndeterminate or ErrUnavailable", err)
	}
	testwait.Until(t, "the loss of the connection", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(states) > 0 && states[len(states)-1] == broker.Disconnected
	})
	p.Heal()
	publishAll(t, b, []string{"a", "b"})
	for range 2 {
		ack(t, receive(t, s))
	}
	nothing(t, s, 100*time.Millisecond)
}

// TestSettlementsOutliveACut settles without a connection, and shows that no message is delivered
// again.
func TestSettlementsOutliveACut(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	r := testserver.NewRelay(t, srv.Addr())
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{r.URL(srv.URL())}}, Namespace: ns})
	declare(t, b)
	publish(t, b, ids("m", 20)...)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 20, Lease: 2 * time.Second})
	var ds []broker.Delivery
	for range 20 {
		ds = append(ds, receive(t, s))
	}
	for _, d := range ds[:5] {
		ack(t, d) // it may be in progress when the connection is cut
	}
	r.SetDown(true)
	testwait.Until(t, "the loss of the connection", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		return errors.Is(b.Publish(ctx, "q", message("probe")), broker.ErrUnavailable)
	})
	for _, d := range ds[5:15] {
		ack(t, d)
	}
	if err := ds[15].Release(testwait.Long(t), 0); err != nil {
		t.Fatalf("Release without a connection: %v", err)
	}
	// Closing the subscription ends it with its last delivery. Its settlements are still sent.
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	r.SetDown(false)
	for _, d := range ds[16:] {
		if err := broker.AckSync(testwait.Long(t), d); err != nil {
			t.Errorf("AckSync after the cut: %v", err)
		}
	}
	rival := subscribe(t, connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}, Namespace: ns}), broker.SubscribeOptions{})
	seen := newTally()
	ctx, cancel := context.WithTimeout(testwait.Long(t), 3*time.Second) // longer than the lease
	defer cancel()
	consume(ctx, rival, seen)
	delete(seen.seen, "probe")
	if len(seen.seen) != 1 || seen.seen["m-00015"] != 1 {
		t.Errorf("seen after everything was settled: %v, want the released one", seen.seen)
	}
}

func TestStreamIsDeleted(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	var log logBook
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns, Logger: log.logger()})
	declare(t, b, 10, 100)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 4})
	publish(t, b, "before")
	ack(t, receive(t, s))
	if err := bare(t, srv.URL()).DeleteStream(testwait.Long(t), "SWJ_"+ns); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "after")
	d := receive(t, s)
	if d.Message().ID != "after" {
		t.Errorf("received %s", d.Message().ID)
	}
	ack(t, d)
	testwait.Until(t, "a word about it", func() bool { return strings.Contains(log.String(), "stream is missing") })
	other := connect(t, natsbroker.Config{Namespace: ns})
	if err := other.Publish(testwait.Long(t), "q", message("x")); err != nil {
		t.Errorf("Publish of another process to the queue that was declared again: %v", err)
	}
	if err := other.Publish(testwait.Long(t), "unknown", message("x")); !errors.Is(err, broker.ErrNoQueue) {
		t.Errorf("Publish to a queue that nobody declared: %v, want ErrNoQueue", err)
	}
}

func TestConsumerIsDeleted(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	var log logBook
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns, Logger: log.logger()})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 4})
	if err := bare(t, srv.URL()).DeleteConsumer(testwait.Long(t), "SWJ_"+ns, "w_q_0"); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "a")
	ack(t, receive(t, s))
	testwait.Until(t, "a word about it", func() bool { return strings.Contains(log.String(), "a consumer was deleted") })
}

func TestTooLargeForTheServer(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnNATS(t, testserver.NATSConfig{Conf: "max_payload: 64KB"})
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}})
	declare(t, b)
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1})
	m := message("large")
	m.Body = make([]byte, 64<<10)
	if err := b.Publish(testwait.Long(t), "q", m); !errors.Is(err, broker.ErrTooLarge) {
		t.Errorf("Publish of as much as max_payload: %v, want ErrTooLarge", err)
	}
	m = message("largest")
	m.Body = make([]byte, 62<<10)
	if err := b.Publish(testwait.Long(t), "q", m); err != nil {
		t.Fatalf("Publish of what fits: %v", err)
	}
	d := receive(t, s)
	if err := d.Release(testwait.Long(t), time.Millisecond); err != nil {
		t.Fatalf("Release of the largest message: %v", err)
	}
	d = receive(t, s)
	if err := d.DeadLetter(testwait.Long(t), broker.Dead{Reason: strings.Repeat("reason ", 1000)}); err != nil {
		t.Fatalf("DeadLetter of the largest message: %v", err)
	}
	dead, err := broker.ListDead(testwait.Long(t), b, "q", 10)
	if err != nil || len(dead) != 1 || len(dead[0].Message.Body) != 62<<10 {
		t.Fatalf("ListDead: %d, %v", len(dead), err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	srv := testserver.OwnNATS(t, testserver.NATSConfig{TLS: files})
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pem)
	good := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.TLSURL()}, TLS: &tls.Config{RootCAs: pool}}})
	declare(t, good)
	publish(t, good, "a")

	wrong := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{srv.TLSURL()}}})
	testwait.UntilNil(t, "Publish to a server of an unknown authority is ErrUnavailable because of it", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := wrong.Publish(ctx, "q", message("a"))
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok || !errors.Is(err, broker.ErrUnavailable) {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
	// A server without TLS receives nothing if TLS is configured.
	plain := testserver.RequireNATS(t)
	meant := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{plain.URL()}, TLS: &tls.Config{RootCAs: pool}}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := meant.Publish(ctx, "q", message("a")); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("Publish with TLS to a server without: %v, want ErrUnavailable", err)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	const wrong = "not-the-secret"
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{strings.Replace(srv.URL(), srv.Password(), wrong, 1)}}})
	err := b.Publish(testwait.Long(t), "q", message("a"))
	if !errors.Is(err, broker.ErrAccess) {
		t.Errorf("Publish with a wrong password: %v, want ErrAccess", err)
	}
	if _, err := b.Subscribe(testwait.Long(t), "q", broker.SubscribeOptions{}); !errors.Is(err, broker.ErrAccess) {
		t.Errorf("Subscribe with a wrong password: %v, want ErrAccess", err)
	}
	if strings.Contains(err.Error(), wrong) {
		t.Errorf("the error holds the password: %v", err)
	}
	for _, u := range []string{"nats://user:p%zz@host", "nats://user:" + wrong + "@host/path", "http://user:" + wrong + "@host", "nats://user:" + wrong + "@"} {
		if _, err := natsbroker.New(natsbroker.Config{Connect: natsconnect.Config{URLs: []string{u}}}); err == nil || strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), "zz") {
			t.Errorf("New: %v", err)
		}
	}
}

// The frozen process is this test's binary. childEnv tells it to be the child, and holds the
// server's address.
const childEnv = "SWARMIJI_TEST_NATS_CHILD"

func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, append([]any{"CHILD"}, words...)...) }

// TestChild is the consumer that TestFrozenConsumer freezes. Without childEnv it is skipped.
func TestChild(t *testing.T) {
	where := os.Getenv(childEnv)
	if where == "" {
		t.Skip("it is run by TestFrozenConsumer")
	}
	url, ns, _ := strings.Cut(where, " ")
	b := connect(t, natsbroker.Config{Connect: natsconnect.Config{URLs: []string{url}}, Namespace: ns})
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1, Lease: testLease})
	d := receive(t, s)
	say("got", d.Message().ID)
	select {
	case <-d.Lost():
	case <-time.After(2 * time.Minute):
		say("never lost it")
	}
	say("ack", errors.Is(d.Ack(testwait.Long(t)), broker.ErrLeaseLost))
	d = receive(t, s)
	say("got", d.Message().ID)
	ack(t, d)
}

func TestFrozenConsumer(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	declare(t, b)
	cmd := exec.CommandContext(testwait.Long(t), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+srv.URL()+" "+ns)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if word, ok := strings.CutPrefix(sc.Text(), "CHILD "); ok {
				lines <- word
			}
		}
	}()
	expect := func(want string) {
		t.Helper()
		if got := <-lines; got != want {
			t.Fatalf("the child says %q, want %q", got, want)
		}
	}
	publish(t, b, "a")
	expect("got a")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, b, broker.SubscribeOptions{Prefetch: 1, Lease: testLease})
	d := receive(t, s)
	if n, _ := d.Deliveries(); d.Message().ID != "a" || n != 2 {
		t.Errorf("received %s, delivery %d; want a, 2", d.Message().ID, n)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	expect("ack true")
	select {
	case <-d.Lost():
		t.Error("the new holder has lost it")
	default:
	}
	ack(t, d)
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatal(err)
	}
	publish(t, b, "b")
	expect("got b")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the child: %v", err)
	}
}

func TestForeignProgram(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	b := connect(t, natsbroker.Config{Namespace: ns})
	if err := b.Declare(testwait.Long(t), broker.Queue{Name: "a.b"}); err != nil {
		t.Fatal(err)
	}
	js := bare(t, srv.URL())
	if _, err := js.Publish(testwait.Long(t), "swj."+ns+".T.a=b.0.some=2Eid", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	s, err := b.Subscribe(testwait.Long(t), "a.b", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := receive(t, s)
	if m := d.Message(); m.ID != "some.id" || string(m.Body) != "hello" || m.Priority != 100 || m.Generation != 0 {
		t.Errorf("received %+v", m)
	}
	ack(t, d)
	st, err := js.Stream(testwait.Long(t), "SWJ_"+ns)
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "an empty queue", func() bool {
		info, err := st.Info(testwait.Long(t), jetstream.WithSubjectFilter("swj."+ns+".T.>"))
		return err == nil && len(info.State.Subjects) == 0
	})
}

// TestAckSyncAnswerLost shows that the outcome of an acknowledgement stays unknown if the lease
// ends before the answer. The server may have executed it, and then no consumer has the message.
func TestAckSyncAnswerLost(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	p := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	direct := connect(t, natsbroker.Config{Namespace: ns})
	b := connect(t, natsbroker.Config{Namespace: ns, Connect: natsconnect.Config{URLs: []string{p.URL(srv.URL())}}})
	declare(t, b)
	publish(t, b, "m")
	d := receive(t, subscribe(t, b, broker.SubscribeOptions{Prefetch: 1, Lease: time.Second}))
	p.BlackHole(false, true)
	outcome := make(chan error, 1)
	go func() { outcome <- broker.AckSync(testwait.Long(t), d) }()
	testwait.Until(t, "the acknowledgement to be executed", func() bool {
		s, err := direct.Stats(testwait.Brief(t), "q")
		return err == nil && s.Ready == 0 && s.Held == 0
	})
	testwait.Closed(t, "the lease", d.Lost())
	p.Heal()
	if err := <-outcome; !errors.Is(err, broker.ErrIndeterminate) {
		t.Errorf("AckSync whose answer was lost, and then the lease: %v; wanted an unknown outcome", err)
	}
}
