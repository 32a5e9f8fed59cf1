package amqpresults_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/amqpresults"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open makes a store in namespace ns and closes it at the end of the test.
func open(t testing.TB, url, ns string, change ...func(*amqpresults.Config)) *amqpresults.Store {
	t.Helper()
	c := amqpresults.Config{Connect: amqpconnect.Config{URLs: []string{url}}, Namespace: ns, Logger: quiet()}
	for _, f := range change {
		f(&c)
	}
	s, err := amqpresults.New(c)
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

func notify(t testing.TB, s resultstore.Replier, node string) resultstore.Replies {
	t.Helper()
	n, err := s.Replies(testwait.Long(t), node)
	if err != nil {
		t.Fatalf("Replies: %v", err)
	}
	return n
}

// done returns a terminal record of task i as a consumer saves it.
func done(node string, i int) resultstore.Record {
	return resultstore.Record{
		ID: task.ID(fmt.Sprintf("task-%d", i)), Name: "add", State: task.StateSucceeded, Deliveries: 1,
		ContentType: "application/json", Result: []byte("3"), NodeID: "consumer", ReplyTo: node,
		StartedAt: time.UnixMilli(1_700_000_000_000).UTC(), FinishedAt: time.UnixMilli(1_700_000_000_005).UTC(),
	}
}

func save(t testing.TB, s *amqpresults.Store, r resultstore.Record) {
	t.Helper()
	if err := s.Save(testwait.Long(t), r); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func receive(t testing.TB, n resultstore.Notifications, want resultstore.Record) {
	t.Helper()
	got, err := n.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("record received (-want +got):\n%s", diff)
	}
}

// channel opens a channel to the server with the bare client library.
func channel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestNewNamesEveryProblemAndNoPassword(t *testing.T) {
	_, err := amqpresults.New(amqpresults.Config{
		Connect:   amqpconnect.Config{URLs: []string{"amqp://me:hunter2@localhost:bad/"}},
		Namespace: "a.b", Expires: time.Millisecond, MaxLength: -1, MaxResult: -1, Prefetch: 1 << 16, QueueType: "stream",
	})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"URL", "Namespace", "Expires", "MaxLength", "MaxResult", "Prefetch", "QueueType"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
}

func TestSaveRefusesWhatIsNoNode(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	s := open(t, srv.URL(), testserver.Namespace())
	for _, node := range []string{"../work", "a b", "ns.q.work*", strings.Repeat("n", 129), "é"} {
		if err := s.Save(testwait.Long(t), done(node, 1)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Save for node %q: %v, want ErrMalformed: a message may not choose another queue", node, err)
		}
		if _, err := s.Replies(testwait.Long(t), node); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Replies for node %q: %v, want ErrMalformed", node, err)
		}
	}
}

func TestSaveWithoutSubmitterIsUnreachable(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	s := open(t, srv.URL(), testserver.Namespace())
	if err := s.Save(testwait.Long(t), done("gone", 1)); !errors.Is(err, resultstore.ErrUnreachable) {
		t.Errorf("Save for a node that never was: %v, want ErrUnreachable", err)
	}
	n := notify(t, s, "here")
	save(t, s, done("here", 1))
	receive(t, n, done("here", 1))
	if err := n.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Save(testwait.Long(t), done("here", 2)); !errors.Is(err, resultstore.ErrUnreachable) {
		t.Errorf("Save after the submitter closed its stream: %v, want ErrUnreachable", err)
	}
}

// Records saved while the submitter has no connection arrive later in order. No record arrives
// twice.
func TestRecordsWaitForAReconnect(t *testing.T) {
	for _, queueType := range []amqpresults.QueueType{amqpresults.Classic, amqpresults.Quorum} {
		t.Run(string(queueType), func(t *testing.T) {
			srv := testserver.RequireRabbit(t)
			proxy := testserver.NewProxy(t, srv.Addr())
			ns := testserver.Namespace()
			consumer := open(t, srv.URL(), ns)
			submitter := open(t, proxy.URL(srv.URL()), ns, func(c *amqpresults.Config) { c.QueueType = queueType })
			n := notify(t, submitter, "node")
			save(t, consumer, done("node", 0))
			receive(t, n, done("node", 0))
			awaitEmpty(t, srv, ns, "node")
			proxy.Cut()
			for i := 1; i <= 200; i++ {
				save(t, consumer, done("node", i))
			}
			proxy.Heal()
			for i := 1; i <= 200; i++ {
				receive(t, n, done("node", i))
			}
		})
	}
}

// awaitEmpty waits until the node's queue holds no messages, neither ready nor unacknowledged.
func awaitEmpty(t testing.TB, srv *testserver.Rabbit, ns, node string) {
	t.Helper()
	testwait.Until(t, "the queue of "+node+" is empty", func() bool {
		queues, err := srv.Messages(testwait.Long(t))
		if err != nil {
			t.Fatal(err)
		}
		n, there := queues["swj."+ns+".reply."+node]
		return there && n == 0
	})
}

func TestReceivedRecordsLeaveTheQueue(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	s := open(t, srv.URL(), ns)
	n := notify(t, s, "node")
	for i := range 3 * 64 / 2 { // not a multiple of maxUnacked
		save(t, s, done("node", i))
		receive(t, n, done("node", i))
	}
	awaitEmpty(t, srv, ns, "node")
}

// Records that were not received when the channel broke are delivered again.
func TestUnreadRecordsSurviveASever(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	consumer := open(t, srv.URL(), ns)
	n := notify(t, open(t, proxy.URL(srv.URL()), ns), "node")
	for i := range 300 { // more than Prefetch
		save(t, consumer, done("node", i))
	}
	proxy.Sever()
	seen := map[task.ID]bool{}
	for len(seen) < 300 {
		r, err := n.Receive(testwait.Long(t))
		if err != nil {
			t.Fatalf("Receive after %d of 300 records: %v", len(seen), err)
		}
		seen[r.ID] = true
	}
}

// The queue of a disconnected submitter expires, and Save then returns ErrUnreachable.
func TestQueueExpires(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	ns := testserver.Namespace()
	consumer := open(t, srv.URL(), ns)
	n := notify(t, open(t, proxy.URL(srv.URL()), ns, func(c *amqpresults.Config) { c.Expires = time.Second }), "node")
	proxy.Cut()
	ctx := testwait.Long(t)
	var err error
	for i := 0; !errors.Is(err, resultstore.ErrUnreachable); i++ {
		if err = consumer.Save(ctx, done("node", i)); err != nil && !errors.Is(err, resultstore.ErrUnreachable) {
			t.Fatalf("the reply queue of 1s never expired: %v", err)
		}
	}
	proxy.Heal()
	awaitReachable(t, consumer, n, "node")
}

// awaitReachable waits until n reports a lost queue and then receives a record.
func awaitReachable(t testing.TB, s *amqpresults.Store, n resultstore.Notifications, node string) {
	t.Helper()
	ctx := testwait.Long(t)
	if r, err := n.Receive(ctx); !errors.Is(err, resultstore.ErrLost) {
		t.Fatalf("Receive after the queue was lost: %+v, %v", r, err)
	}
	for err := s.Save(ctx, done(node, 99)); err != nil; err = s.Save(ctx, done(node, 99)) {
		// the queue may return between two checks
		gone := errors.Is(err, resultstore.ErrUnreachable) || errors.Is(err, resultstore.ErrUnavailable)
		if !gone || ctx.Err() != nil {
			t.Fatalf("the reply queue did not come back: %v", err)
		}
	}
	receive(t, n, done(node, 99))
}

func TestDeletedQueueIsMadeAgain(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	s := open(t, srv.URL(), ns)
	n := notify(t, s, "node")
	if _, err := channel(t, srv.URL()).QueueDelete("swj."+ns+".reply.node", false, false, false); err != nil {
		t.Fatal(err)
	}
	awaitReachable(t, s, n, "node")
}

func TestQueueOfOtherArgumentsIsUsed(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	if _, err := channel(t, srv.URL()).QueueDeclare("swj."+ns+".reply.node", true, false, false, false,
		amqp.Table{"x-expires": int64(60_000)}); err != nil {
		t.Fatal(err)
	}
	s := open(t, srv.URL(), ns)
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
}

// A foreign message in the queue causes one error, and the stream continues.
func TestStrangeMessagesDoNotEndTheStream(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	s := open(t, srv.URL(), ns)
	n := notify(t, s, "node")
	ch := channel(t, srv.URL())
	for _, body := range []string{"", "no record", "\xdd\x01\x00\x00\x00", strings.Repeat("\x91", 1<<20)} {
		if err := ch.PublishWithContext(t.Context(), "", "swj."+ns+".reply.node", false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Receive(testwait.Long(t)); !errors.Is(err, resultstore.ErrMalformed) {
			t.Errorf("Receive of %.20q: %v, want ErrMalformed", body, err)
		}
	}
	save(t, s, done("node", 1))
	receive(t, n, done("node", 1))
}

// While the broker blocks publishers, Save returns when its ctx ends and waiting results are still
// delivered.
func TestMemoryAlarm(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	s := open(t, srv.URL(), testserver.Namespace())
	n := notify(t, s, "node")
	save(t, s, done("node", 1))
	t.Cleanup(func() {
		if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
			t.Error(err)
		}
	})
	if err := srv.SetMemoryAlarm(testwait.Long(t), true); err != nil {
		t.Fatal(err)
	}
	receive(t, n, done("node", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := s.Save(ctx, done("node", 2))
	if !errors.Is(err, resultstore.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Save under a memory alarm: %v, want ErrUnavailable with the ctx's error", err)
	}
	if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
		t.Fatal(err)
	}
	save(t, s, done("node", 3))
}

func TestWrongPasswordIsToldAtOnceAndNotShown(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	url := strings.Replace(srv.URL(), srv.Password(), "hunter2", 1)
	s := open(t, url, testserver.Namespace())
	_, err := s.Replies(testwait.Long(t), "node")
	saveErr := s.Save(testwait.Long(t), done("node", 1))
	for _, err := range []error{err, saveErr} {
		if !errors.Is(err, resultstore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a wrong password: %v, want ErrUnavailable before ctx ends", err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

func BenchmarkSaveAndReceive(b *testing.B) {
	srv := testserver.RequireRabbit(b)
	s := open(b, srv.URL(), testserver.Namespace())
	n := notify(b, s, "node")
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(128)
	b.ResetTimer() // the server was started above
	got := make(chan error, 1)
	go func() {
		for range b.N {
			if _, err := n.Receive(ctx); err != nil {
				got <- err
				return
			}
		}
		got <- nil
	}()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Save(ctx, done("node", 1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	if err := <-got; err != nil {
		b.Fatal(err)
	}
}
