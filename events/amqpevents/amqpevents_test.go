package amqpevents_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open makes a bus in namespace ns and closes it at the end of the test.
func open(t testing.TB, url, ns string, change ...func(*amqpevents.Config)) *amqpevents.Bus {
	t.Helper()
	c := amqpevents.Config{Connect: amqpconnect.Config{URLs: []string{url}}, Namespace: ns, Logger: quiet()}
	for _, f := range change {
		f(&c)
	}
	b, err := amqpevents.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func subscribe(t testing.TB, b *amqpevents.Bus, f events.Filter) events.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), f)
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

// started returns the event of task i.
func started(i int) events.Event {
	return events.Event{
		Type: events.TaskStarted, TaskID: task.ID("task-" + strconv.Itoa(i)), NodeID: "node", PID: 7,
		Time: time.UnixMilli(1_700_000_000_000).UTC(),
	}
}

func publish(t testing.TB, b *amqpevents.Bus, i int) {
	t.Helper()
	if err := b.Publish(t.Context(), started(i)); err != nil {
		t.Fatalf("Publish: %v", err)
	}
}

func receive(t testing.TB, s events.Subscription) events.Event {
	t.Helper()
	e, err := s.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return e
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
	_, err := amqpevents.New(amqpevents.Config{
		Connect: amqpconnect.Config{URLs: []string{"amqp://me:hunter2@localhost:bad/"}}, Namespace: "a.b", QueueLength: -1, Buffer: -1,
	})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"URL", "Namespace", "QueueLength", "Buffer"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
}

// Without a server Publish returns at once, memory is limited, lost events are counted, and Close
// returns.
func TestPublishWithoutServer(t *testing.T) {
	const n, room = 20_000, 100
	b := open(t, "amqp://nobody:hunter2@127.0.0.1:1/", "none", func(c *amqpevents.Config) {
		c.Batch = events.BatcherConfig{Capacity: room, SendTimeout: 200 * time.Millisecond}
	})
	begin := time.Now()
	for i := range n {
		publish(t, b, i)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("%d events without a server took %v", n, d)
	}
	if err := b.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := b.Dropped(); got != n {
		t.Errorf("Dropped = %d, want %d: not one could be sent", got, n)
	}
	if err := b.Publish(t.Context(), started(1)); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish after Close: %v, want ErrClosed", err)
	}
}

// Under a memory alarm events are dropped and counted, and listeners still work.
func TestMemoryAlarmDropsEvents(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := open(t, srv.URL(), testserver.Namespace(), func(c *amqpevents.Config) {
		c.Batch = events.BatcherConfig{Linger: time.Millisecond, SendTimeout: 100 * time.Millisecond}
	})
	s := subscribe(t, b, events.Filter{})
	publish(t, b, 0)
	receive(t, s)
	t.Cleanup(func() {
		if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
			t.Error(err)
		}
	})
	if err := srv.SetMemoryAlarm(testwait.Long(t), true); err != nil {
		t.Fatal(err)
	}
	ctx := testwait.Long(t)
	for i := 1; b.Dropped() == 0; i++ { // the first may be sent before the alarm is known
		publish(t, b, i)
		if ctx.Err() != nil {
			t.Fatal("nothing was dropped while the broker took nothing")
		}
		pause(t)
	}
	if err := srv.SetMemoryAlarm(testwait.Long(t), false); err != nil {
		t.Fatal(err)
	}
	awaitEvents(t, b, s)
}

// pause waits 10 ms between two checks of a loop, or until the test ends.
func pause(t testing.TB) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// awaitEvents publishes until an event arrives that was published after the call.
func awaitEvents(t testing.TB, b *amqpevents.Bus, s events.Subscription) {
	t.Helper()
	ctx := testwait.Long(t)
	for i := 1_000_000; ; i++ {
		publish(t, b, i)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		e, err := s.Receive(short)
		cancel()
		switch {
		case err == nil && len(e.TaskID) == len("task-1000000"):
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("Receive: %v", err)
		case ctx.Err() != nil:
			t.Fatal("no event arrived any more")
		}
	}
}

// A listener that does not read uses limited memory in this process and at the broker, and receives
// the newest events.
func TestStuckListener(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := open(t, srv.URL(), ns, func(c *amqpevents.Config) { c.Buffer = 10 })
	stuck := subscribe(t, b, events.Filter{})
	quick := subscribe(t, open(t, srv.URL(), ns), events.Filter{})
	const n = 1000
	for i := range n {
		publish(t, b, i)
	}
	for i := range n {
		if e := receive(t, quick); e.TaskID != started(i).TaskID {
			t.Fatalf("event %d is of %s, want the order of the publishes", i, e.TaskID)
		}
	}
	ctx := testwait.Long(t)
	for stuck.(events.DropCounter).Dropped() < n-10 {
		if ctx.Err() != nil {
			t.Fatalf("Dropped = %d, want %d", stuck.(events.DropCounter).Dropped(), n-10)
		}
		pause(t)
	}
	if e := receive(t, stuck); e.TaskID != started(n-10).TaskID {
		t.Errorf("the oldest event kept is of %s, want %s", e.TaskID, started(n-10).TaskID)
	}
}

func TestListenerOutlivesItsConnection(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b := open(t, proxy.URL(srv.URL()), testserver.Namespace())
	s := subscribe(t, b, events.Filter{})
	publish(t, b, 0)
	receive(t, s)
	// the suite restarts the server
	for _, fault := range []func(){proxy.Sever, func() { proxy.Cut(); proxy.Heal() }} {
		fault()
		awaitEvents(t, b, s)
	}
	// the connection that sends may learn of the last fault only now: events may have been lost
	if err := b.Close(testwait.Long(t)); err != nil && !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Close: %v", err)
	}
}

// Foreign messages on the exchange are counted and skipped. Single maps of other writers are read.
func TestStrangeMessages(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := open(t, srv.URL(), ns)
	s := subscribe(t, b, events.Filter{})
	ch := channel(t, srv.URL())
	bad := []string{"", "nonsense", "[]", strings.Repeat("[", 1<<16)}
	for _, body := range append(bad, `{"type":"mine","n":1}`) {
		if err := ch.PublishWithContext(t.Context(), "swj."+ns+".ev", "any", false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if e := receive(t, s); e.Type != "mine" || e.Fields["n"] != 1.0 {
		t.Errorf("received %+v, want the single map", e)
	}
	if got := s.(events.DropCounter).Dropped(); got != uint64(len(bad)) {
		t.Errorf("Dropped = %d, want %d", got, len(bad))
	}
}

// Close of a subscription removes its queue.
func TestCloseRemovesTheQueue(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := open(t, srv.URL(), testserver.Namespace())
	before := queues(t, srv)
	for range 5 {
		if err := subscribe(t, b, events.Filter{}).Close(testwait.Long(t)); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	testwait.Until(t, "no queue is left of 5 closed subscriptions", func() bool { return queues(t, srv) <= before })
}

// On an idle bus every received message is acknowledged; otherwise the server would close the
// channel after consumer_timeout.
func TestTakenMessagesLeaveTheQueue(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := open(t, srv.URL(), ns)
	s := subscribe(t, b, events.Filter{})
	queue, err := srv.Eval(testwait.Long(t), `[io:format("~s", [Q]) || {binding, {resource, _, _, _}, _, {resource, _, _, Q}, _} <-
		rabbit_binding:list_for_source(rabbit_misc:r(<<"/">>, exchange, <<"swj.`+ns+`.ev">>))]`)
	if err != nil || queue == "" {
		t.Fatalf("no queue is bound to the exchange: %v", err)
	}
	for i := range 3 { // far fewer than are acknowledged together
		publish(t, b, i)
		receive(t, s)
	}
	testwait.Until(t, "the queue holds no messages that were taken", func() bool {
		n, there := messages(t, srv)[queue]
		return there && n == 0
	})
}

// queues returns the number of queues of subscriptions.
func queues(t testing.TB, srv *testserver.Rabbit) int {
	t.Helper()
	n := 0
	for name := range messages(t, srv) {
		if strings.HasPrefix(name, "amq.gen") {
			n++
		}
	}
	return n
}

// messages returns the number of messages in each queue.
func messages(t testing.TB, srv *testserver.Rabbit) map[string]int {
	t.Helper()
	queues, err := srv.Messages(testwait.Long(t))
	if err != nil {
		t.Fatal(err)
	}
	return queues
}

func TestWrongPasswordIsToldAtOnceAndNotShown(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	b := open(t, strings.Replace(srv.URL(), srv.Password(), "hunter2", 1), testserver.Namespace())
	_, err := b.Subscribe(testwait.Long(t), events.Filter{})
	if !errors.Is(err, events.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Subscribe with a wrong password: %v, want ErrUnavailable before ctx ends", err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
}

// BenchmarkPublish measures the time of Publish with one listener.
func BenchmarkPublish(b *testing.B) {
	srv := testserver.RequireRabbit(b)
	bus := open(b, srv.URL(), testserver.Namespace())
	subscribe(b, bus, events.Filter{})
	b.ReportAllocs()
	for b.Loop() {
		publish(b, bus, 1)
	}
}
