package natsevents_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/natsevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
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
func raw(t testing.TB, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect("", opts...)
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

// open makes a bus and closes it at the end of the test.
func open(t testing.TB, c natsevents.Config) *natsevents.Bus {
	t.Helper()
	if c.Logger == nil {
		c.Logger = quiet()
	}
	b, err := natsevents.New(c)
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

func subscribe(t testing.TB, b *natsevents.Bus) events.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), events.Filter{})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

func replay(t testing.TB, b *natsevents.Bus) events.Subscription {
	t.Helper()
	s, err := b.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	if err != nil {
		t.Fatalf("Replay: %v", err)
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

func publish(t testing.TB, b *natsevents.Bus, is ...int) {
	t.Helper()
	for _, i := range is {
		if err := b.Publish(t.Context(), started(i)); err != nil {
			t.Fatalf("Publish: %v", err)
		}
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

// wantTask receives the event of task i.
func wantTask(t testing.TB, s events.Subscription, i int) {
	t.Helper()
	if e := receive(t, s); e.TaskID != started(i).TaskID {
		t.Fatalf("received an event of %s, want %s", e.TaskID, started(i).TaskID)
	}
}

func TestNewNamesEveryProblemAndNoPassword(t *testing.T) {
	_, err := natsevents.New(natsevents.Config{
		Connect: natsconnect.Config{URLs: []string{"nats://me:hunter2@localhost:bad"}}, Namespace: "a.b", Buffer: -1, Replicas: -1, Retain: events.Retention{Age: -1, Max: -1},
	})
	if err == nil {
		t.Fatal("New took a configuration without a single good field")
	}
	for _, word := range []string{"URL", "Namespace", "Buffer", "Replicas", "retention age", "retention of"} {
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
	b := open(t, natsevents.Config{
		Connect: natsconnect.Config{URLs: []string{strings.Replace(srv.URL(), srv.Password(), "hunter2", 1)}}, Retain: events.Retention{Age: time.Hour},
	})
	_, subscribe := b.Subscribe(testwait.Long(t), events.Filter{})
	_, replay := b.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	for call, err := range map[string]error{"Subscribe": subscribe, "Replay": replay} {
		if !errors.Is(err, events.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with a wrong password: %v, want ErrUnavailable before ctx ends", call, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error of %s holds the password: %v", call, err)
		}
	}
}

// Without a server Publish returns at once, memory is limited, lost events are counted, and Close
// returns.
func TestPublishWithoutServer(t *testing.T) {
	const n, room = 20_000, 100
	b := open(t, natsevents.Config{
		Connect: natsconnect.Config{URLs: []string{"nats://nobody:hunter2@127.0.0.1:1/"}}, Retain: events.Retention{Age: time.Hour},
		Batch: events.BatcherConfig{Capacity: room, SendTimeout: 200 * time.Millisecond},
	})
	for i := range n {
		publish(t, b, i)
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

// While the stream cannot be made, live events arrive, the unkept events are counted as lost, and
// the log has one warning. Once the stream can be made, events are kept.
func TestStreamThatCannotBeMade(t *testing.T) {
	srv := server(t, embedded.Options{})
	js := raw(t, nats.InProcessServer(srv))
	if _, err := js.CreateStream(testwait.Long(t), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"swj.default.>"}, NoAck: true}); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	b := open(t, natsevents.Config{
		Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour},
		Batch: events.BatcherConfig{SendTimeout: 500 * time.Millisecond}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if _, err := b.Replay(testwait.Long(t), events.Filter{}, time.Time{}); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Replay without a stream: %v, want ErrUnavailable", err)
	}
	s := subscribe(t, b)
	for i := range 3 {
		publish(t, b, i)
		wantTask(t, s, i)
	}
	for ctx := testwait.Long(t); b.Dropped() < 3; pause(t) {
		if ctx.Err() != nil {
			t.Fatalf("Dropped = %d, want the 3 that were not kept", b.Dropped())
		}
	}
	if err := js.DeleteStream(testwait.Long(t), "OTHER"); err != nil {
		t.Fatal(err)
	}
	publish(t, b, 3)
	wantTask(t, replay(t, b), 3)
	if err := b.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if b.Dropped() != 3 {
		t.Errorf("Dropped = %d, want 3", b.Dropped())
	}
	for _, words := range []string{"cannot store events for late listeners; they are counted as dropped", "events for late listeners are stored again"} {
		if n := strings.Count(log.String(), words); n != 1 {
			t.Errorf("the log says %d times that %s, want once:\n%s", n, words, log.String())
		}
	}
}

// A listener that does not read uses limited memory and receives the newest events.
func TestStuckListener(t *testing.T) {
	srv := server(t, embedded.Options{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Buffer: 10})
	stuck := subscribe(t, b)
	quick := subscribe(t, open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}}))
	const n = 1000
	for i := range n {
		publish(t, b, i)
	}
	for i := range n {
		wantTask(t, quick, i)
	}
	ctx := testwait.Long(t)
	for stuck.(events.DropCounter).Dropped() < n-10 {
		if ctx.Err() != nil {
			t.Fatalf("Dropped = %d, want %d", stuck.(events.DropCounter).Dropped(), n-10)
		}
		pause(t)
	}
	wantTask(t, stuck, n-10)
}

// pause waits 10 ms between two checks of a loop, or until the test ends.
func pause(t testing.TB) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-t.Context().Done():
	}
}

// Foreign messages on the subjects are counted and skipped. Single maps of other writers are read.
func TestStrangeMessages(t *testing.T) {
	srv := server(t, embedded.Options{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour}})
	live, kept := subscribe(t, b), replay(t, b)
	nc := raw(t, nats.InProcessServer(srv)).Conn()
	bad := []string{"", "nonsense", "[]", strings.Repeat("[", 1<<16)}
	for subject, s := range map[string]events.Subscription{"swj.default.ev": live, "swj.default.K": kept} {
		for _, body := range append(bad, `{"type":"mine","n":1}`) {
			if err := nc.Publish(subject, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		if e := receive(t, s); e.Type != "mine" || e.Fields["n"] != 1.0 {
			t.Errorf("received %+v on %s, want the single map", e, subject)
		}
		if got := s.(events.DropCounter).Dropped(); got != uint64(len(bad)) {
			t.Errorf("Dropped on %s = %d, want %d", subject, got, len(bad))
		}
	}
}

// A server with a small max_payload receives small messages. A single event above the limit is
// counted.
func TestSmallMessages(t *testing.T) {
	srv := testserver.OwnNATS(t, testserver.NATSConfig{Conf: "max_payload: 2KB"})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{URLs: []string{srv.URL()}}})
	s := subscribe(t, b)
	const n = 150
	for i := range n {
		publish(t, b, i)
		if i == n/2 {
			e := started(i)
			e.Fields = map[string]any{"large": strings.Repeat("x", 3000)}
			if err := b.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		wantTask(t, s, i)
	}
	if b.Dropped() != 1 {
		t.Errorf("Dropped = %d, want the one event that is larger than the server takes", b.Dropped())
	}
}

// A deleted stream of kept events is made again, and open replays continue with the new one.
func TestStreamThatWasDeleted(t *testing.T) {
	srv := server(t, embedded.Options{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour}})
	s := replay(t, b)
	publish(t, b, 0, 1, 2)
	for i := range 3 {
		wantTask(t, s, i)
	}
	if err := raw(t, nats.InProcessServer(srv)).DeleteStream(testwait.Long(t), "SWJEVENTS_default"); err != nil {
		t.Fatal(err)
	}
	ctx := testwait.Long(t)
	for i := 3; ; i++ { // events that find no stream are lost and counted
		publish(t, b, i)
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := s.Receive(short)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the stream does not go on: %v", err)
		}
	}
}

// The limits of the stream are those of the last opened bus, so that a deployment may change them.
func TestOtherRetention(t *testing.T) {
	srv := server(t, embedded.Options{})
	js := raw(t, nats.InProcessServer(srv))
	for _, r := range []events.Retention{{Age: time.Hour}, {Age: time.Minute, Max: 10}, {Age: time.Millisecond, Max: 20}} {
		b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: r})
		s := replay(t, b)
		publish(t, b, 1)
		wantTask(t, s, 1)
		st, err := js.Stream(testwait.Long(t), "SWJEVENTS_default")
		if err != nil {
			t.Fatal(err)
		}
		r, err = r.Complete()
		if c := st.CachedInfo().Config; err != nil || c.MaxMsgs != int64(r.Max) || c.MaxAge != max(r.Age, 100*time.Millisecond) {
			t.Errorf("the stream keeps %d events for %v, want %d for %v", c.MaxMsgs, c.MaxAge, r.Max, r.Age)
		}
		if err := b.Close(testwait.Long(t)); err != nil {
			t.Error(err)
		}
	}
}

// A replay whose next events were removed counts them.
func TestLateReplayCounts(t *testing.T) {
	srv := server(t, embedded.Options{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour, Max: 10}})
	late := replay(t, b)
	const n = 2000 // more than the server prefetches
	publisher := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour, Max: 10}})
	for i := range n {
		publish(t, publisher, i)
	}
	if err := publisher.Close(testwait.Long(t)); err != nil || publisher.Dropped() > 0 {
		t.Fatalf("Close: %v; %d events were dropped", err, publisher.Dropped())
	}
	got := 0
	for last := ""; last != string(started(n-1).TaskID); got++ {
		last = string(receive(t, late).TaskID)
	}
	if d := late.(events.DropCounter).Dropped(); int(d)+got != n {
		t.Errorf("%d events came and %d are counted as missed, want %d maxPending", got, d, n)
	}
}

// Closed replays leave no consumer at the server.
func TestCloseRemovesTheConsumer(t *testing.T) {
	srv := server(t, embedded.Options{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{InProcess: srv}, Retain: events.Retention{Age: time.Hour}})
	js := raw(t, nats.InProcessServer(srv))
	for range 5 {
		if err := replay(t, b).Close(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := testwait.Long(t)
	for {
		st, err := js.Stream(ctx, "SWJEVENTS_default")
		if err != nil {
			t.Fatal(err)
		}
		if st.CachedInfo().State.Consumers == 0 {
			return
		}
		pause(t)
	}
}

// The bus works over TLS, and no listener connects to a server with an unknown authority.
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
	config := func(c *tls.Config) natsevents.Config {
		return natsevents.Config{Connect: natsconnect.Config{URLs: []string{srv.TLSURL()}, TLS: c}}
	}
	b := open(t, config(trusting))
	s := subscribe(t, b)
	publish(t, b, 1)
	wantTask(t, s, 1)

	stranger := open(t, config(nil))
	testwait.UntilNil(t, "Subscribe to a server of an unknown authority is ErrUnavailable because of its certificate", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := stranger.Subscribe(ctx, events.Filter{})
		if !errors.Is(err, events.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}

// Kept events survive the loss of the stream's leader.
func TestCluster(t *testing.T) {
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	b := open(t, natsevents.Config{Connect: natsconnect.Config{URLs: c.URLs()}, Retain: events.Retention{Age: time.Hour}, Replicas: 3, Batch: events.BatcherConfig{SendTimeout: time.Second}})
	s := replay(t, b)
	for i := range 200 {
		publish(t, b, i)
	}
	for i := range 200 {
		wantTask(t, s, i)
	}
	leader, err := c.Leader(testwait.Long(t), "SWJEVENTS_default")
	if err != nil {
		t.Fatal(err)
	}
	c.KillNode(leader)
	ctx, want := testwait.Long(t), 1000
	for { // events published during the election may be lost
		publish(t, b, want)
		// the stream needs several round trips to the cluster to continue
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		e, err := s.Receive(short)
		cancel()
		if err == nil {
			if !strings.HasPrefix(string(e.TaskID), "task-1") || len(e.TaskID) != len("task-1000") {
				t.Errorf("received %s after the leader was killed: an event comes twice", e.TaskID)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the stream does not go on: %v", err)
		}
		want++
	}
	fresh := replay(t, b)
	for i := range 200 {
		wantTask(t, fresh, i)
	}
}

// The server with the consumer of a replay dies while the bus is connected to another one, and no
// message reports the loss. The replay continues, even if each Receive waits for less time than its
// detection takes.
func TestConsumerIsLostWithItsServer(t *testing.T) {
	c := testserver.OwnNATSCluster(t, testserver.NATSConfig{})
	names := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		nc, err := nats.Connect(n.URL(), nats.DontRandomize())
		if err != nil {
			t.Fatal(err)
		}
		names[i] = nc.ConnectedServerName()
		nc.Close()
	}
	b := open(t, natsevents.Config{Connect: natsconnect.Config{URLs: []string{c.Nodes[0].URL()}}, Retain: events.Retention{Age: time.Hour}, Replicas: 3, Batch: events.BatcherConfig{SendTimeout: time.Second}})
	var s events.Subscription
	at := 0
	testwait.Until(t, "a stream whose consumer is on another server", func() bool {
		if s != nil {
			_ = s.Close(t.Context()) // returns nil
		}
		s = replay(t, b)
		at = slices.Index(names, consumerLeader(t, c.Nodes[0].URL(), "SWJEVENTS_default"))
		return at > 0
	})
	publish(t, b, 1)
	wantTask(t, s, 1)
	c.KillNode(at)
	ctx := testwait.Long(t)
	for i := 2; ; i++ { // events published meanwhile may be lost
		publish(t, b, i)
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := s.Receive(short)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the stream does not go on: %v", err)
		}
	}
}

// consumerLeader returns the name of the server that has the newest consumer of a stream, or "" if
// it is not known.
func consumerLeader(t *testing.T, url, stream string) string {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(testwait.Long(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	var newest *jetstream.ConsumerInfo
	for info := range st.ListConsumers(testwait.Long(t)).Info() {
		if newest == nil || info.Created.After(newest.Created) {
			newest = info
		}
	}
	if newest == nil || newest.Cluster == nil {
		return ""
	}
	return newest.Cluster.Leader
}

// BenchmarkKept measures keeping events while a replay reads them.
func BenchmarkKept(b *testing.B) {
	bus := open(b, natsevents.Config{
		Connect: natsconnect.Config{URLs: []string{testserver.RequireNATS(b).URL()}}, Namespace: testserver.Namespace(), Retain: events.Retention{Age: time.Hour},
	})
	s := replay(b, bus)
	b.ReportAllocs()
	const chunk = 1000
	for i := 0; b.Loop(); i++ {
		publish(b, bus, i)
		if i%chunk == chunk-1 {
			for range chunk {
				receive(b, s)
			}
		}
	}
	if d := bus.Dropped(); d > 0 {
		b.Errorf("%d events were dropped", d)
	}
}
