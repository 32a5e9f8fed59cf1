package lanestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/lanes"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// Adapter is an adapter with lanes.
type Adapter struct {
	// Open returns a new Broker that is closed at the end of the test. All share a namespace.
	Open func(t testing.TB, log *slog.Logger) broker.Broker
	// Stored returns the numbers of waiting messages in the lanes of a queue without levels, by the
	// server.
	Stored func(t testing.TB, queue string) [lanes.Count]int
}

// Cases runs the cases of fair queues that are the same for all adapters with lanes.
func Cases(t *testing.T, a Adapter) {
	for name, fn := range map[string]func(*testing.T, Adapter){
		"a light key passes a backlog": lightKey,
		"a lane is kept":               laneIsKept,
		"the first declaration":        firstDeclaration,
		"a stop returns all lanes":     stop,
		"a prefetch of 0":              noPrefetch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, a)
		})
	}
}

// open returns a new Broker that does not log.
func (a Adapter) open(t testing.TB) broker.Broker {
	t.Helper()
	return a.Open(t, slog.New(slog.DiscardHandler))
}

// fair declares a new fair queue and returns its name.
func fair(t testing.TB, b broker.Broker) string {
	t.Helper()
	q := rand.Text()
	declare(t, b, broker.Queue{Name: q, Fair: true})
	return q
}

// declare declares q.
func declare(t testing.TB, b broker.Broker, q broker.Queue) {
	t.Helper()
	if err := broker.Declare(testwait.Long(t), b, q); err != nil {
		t.Fatalf("Declare: %v", err)
	}
}

// keyed returns a message with a fairness key.
func keyed(id, key string) *broker.Message {
	return &broker.Message{ID: id, Priority: 100, Key: key, Body: []byte("{}")}
}

// dump publishes n messages of one key at once.
func dump(t testing.TB, b broker.Broker, queue, key string, n int) {
	t.Helper()
	var ms []broker.Outgoing
	for i := range n {
		ms = append(ms, broker.Outgoing{Queue: queue, Message: keyed(fmt.Sprintf("%s-%04d", key, i), key)})
	}
	if err := broker.PublishBatch(testwait.Long(t), b, ms); err != nil {
		t.Fatalf("PublishBatch: %v", err)
	}
}

// publish publishes m.
func publish(t testing.TB, b broker.Broker, queue string, m *broker.Message) {
	t.Helper()
	if err := b.Publish(testwait.Long(t), queue, m); err != nil {
		t.Fatalf("Publish(%s): %v", m.ID, err)
	}
}

// subscribe opens a subscription whose lease is longer than any test.
func subscribe(t testing.TB, b broker.Broker, queue string, prefetch int) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(testwait.Long(t), queue, broker.SubscribeOptions{Prefetch: prefetch, Lease: time.Hour})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return s
}

// receive waits for the next delivery.
func receive(t testing.TB, s broker.Subscription) broker.Delivery {
	t.Helper()
	d, err := s.Receive(testwait.Long(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return d
}

// ackNext receives a message, acknowledges it and returns its id.
func ackNext(t testing.TB, s broker.Subscription) (id string) {
	t.Helper()
	d := receive(t, s)
	if err := d.Ack(testwait.Long(t)); err != nil {
		t.Fatalf("Ack: %v", err)
	}
	return d.Message().ID
}

// held returns the ids of the messages that s holds.
func held(t testing.TB, s broker.Subscription) (ids []string) {
	t.Helper()
	b, ok := capability.As[broker.Buffer](s)
	if !ok {
		t.Fatal("the subscription is no Buffer")
	}
	for _, m := range b.Buffered() {
		ids = append(ids, m.ID)
	}
	return ids
}

// lightKey shows the bound: once a light task is held, it starts after the turns of the other
// lanes.
func lightKey(t *testing.T, a Adapter) {
	b := a.open(t)
	q := fair(t, b)
	const backlog, lights, others = 400, 10, 4 + 2 + 1 // others: the turns of the lanes 1 to 3
	dump(t, b, q, "heavy", backlog)
	s := subscribe(t, a.open(t), q, 8)
	starts := 0
	start := func() (id string) {
		starts++
		return ackNext(t, s)
	}
	for light := range lights {
		for range 20 {
			start()
		}
		id := fmt.Sprintf("light-%d", light)
		publish(t, b, q, keyed(id, id))
		testwait.Until(t, "the light task among the held ones", func() bool { return slices.Contains(held(t, s), id) })
		for before := 0; start() != id; before++ {
			if before == others {
				t.Fatalf("%s has not started after the turns of the other lanes", id)
			}
		}
	}
	for starts < backlog+lights {
		start()
	}
}

// laneIsKept shows that each copy of a message stays in its lane, and keeps key and weight.
func laneIsKept(t *testing.T, a Adapter) {
	b := a.open(t)
	q := fair(t, b)
	dump(t, b, q, "heavy", 20)
	ctx := testwait.Long(t)
	inspector, _ := capability.As[broker.Inspector](b)
	if n, err := inspector.Purge(ctx, q); err != nil || n != 20 {
		t.Fatalf("Purge: %d, %v", n, err)
	}
	m := keyed("task", "heavy")
	m.Weight = 7
	if err := broker.PublishAt(ctx, b, broker.Outgoing{Queue: q, Message: m, At: time.Now().Add(400 * time.Millisecond)}); err != nil {
		t.Fatalf("PublishAt: %v", err)
	}
	other := a.open(t) // it has counted nothing
	s := subscribe(t, other, q, 2)
	check := func(m *broker.Message, what string) {
		t.Helper()
		if m.Key != "heavy" || m.Weight != 7 || m.Headers[lanes.Header] != int64(2) {
			t.Errorf("%s: key %q, weight %d, headers %v, want lane 2", what, m.Key, m.Weight, m.Headers)
		}
	}
	d := receive(t, s)
	check(d.Message(), "after a delay")
	for _, delay := range []time.Duration{0, time.Millisecond, 400 * time.Millisecond} {
		if err := d.Release(ctx, delay); err != nil {
			t.Fatalf("Release: %v", err)
		}
		d = receive(t, s)
		check(d.Message(), fmt.Sprint("after a release for ", delay))
	}
	next := *d.Message() // a consumer copies the headers to the next generation
	next.Generation++
	if err := broker.Replace(ctx, other, d, broker.Outgoing{Queue: q, Message: &next}); err != nil {
		t.Fatalf("Replace: %v", err)
	}
	d = receive(t, s)
	check(d.Message(), "after a retry")
	if err := d.DeadLetter(ctx, broker.Dead{Reason: "test"}); err != nil {
		t.Fatalf("DeadLetter: %v", err)
	}
	var dead *broker.Message
	command := a.open(t) // it knows nothing of the queue
	letters, _ := capability.As[broker.DeadLetterer](command)
	if err := letters.ScanDead(ctx, q, func(l *broker.Dead) broker.DeadAction {
		dead = l.Message
		return broker.DeadRemove
	}); err != nil || dead == nil {
		t.Fatalf("ScanDead: %v, %v", dead, err)
	}
	check(dead, "as a dead letter")
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	next = *dead // as a requeue does
	next.Generation++
	publish(t, command, q, &next)
	testwait.Until(t, "the message in lane 2", func() bool { return a.Stored(t, q) == [lanes.Count]int{0, 0, 1, 0} })
}

// firstDeclaration shows that a queue that exists is used as it is, and that the difference is
// logged once.
func firstDeclaration(t *testing.T, a Adapter) {
	levels := []int{10, 100}
	for name, tt := range map[string]struct {
		first, second broker.Queue
		logged        int
	}{
		"plain":                       {broker.Queue{}, broker.Queue{Fair: true}, 1},
		"with levels":                 {broker.Queue{Levels: levels}, broker.Queue{Levels: levels, Fair: true}, 1},
		"fair":                        {broker.Queue{Fair: true}, broker.Queue{Levels: levels}, 1},
		"fair with levels":            {broker.Queue{Levels: levels, Fair: true}, broker.Queue{Levels: levels}, 1},
		"fair, and then without Fair": {broker.Queue{Fair: true}, broker.Queue{}, 0},
		"fair twice":                  {broker.Queue{Fair: true}, broker.Queue{Fair: true}, 0},
		"fair twice, one level":       {broker.Queue{Fair: true}, broker.Queue{Fair: true, Levels: []int{50}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			first, second := a.open(t), a.Open(t, slog.New(slog.NewTextHandler(&log, nil)))
			q := rand.Text()
			tt.first.Name, tt.second.Name = q, q
			declare(t, first, tt.first)
			for range 2 {
				declare(t, second, tt.second)
			}
			if n := log.count("another fairness"); n != tt.logged {
				t.Errorf("the difference was logged %d times, want %d: %s", n, tt.logged, &log.text)
			}
			d, err := broker.Describe(testwait.Long(t), second, q)
			if err != nil || d.Fair != tt.first.Fair || !slices.Equal(d.Levels, tt.first.Levels) {
				t.Errorf("Describe: %+v, %v, want %+v", d, err, tt.first)
			}
			dump(t, second, q, "heavy", 20)
			s := subscribe(t, first, q, 4)
			for range 20 {
				ackNext(t, s)
			}
		})
	}
}

// lines is a log. Safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how often the log has a text.
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(text))
}

// dumped are the numbers of messages in the lanes after a dump of 100 messages.
var dumped = [lanes.Count]int{4, 12, 48, 36}

// heldOfAll is the number of messages that a subscription with a prefetch of 8 holds after a dump
// of 100 messages.
const heldOfAll = 4 + 8 + 8 + 8

// stop shows that a closed subscription gives back the messages that it holds of each lane.
func stop(t *testing.T, a Adapter) {
	b := a.open(t)
	q := fair(t, b)
	dump(t, b, q, "heavy", 100)
	s := subscribe(t, b, q, 8)
	testwait.Until(t, "held messages of each lane", func() bool { return len(held(t, s)) == heldOfAll })
	if err := s.Close(testwait.Long(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	testwait.Until(t, "all messages in their lanes", func() bool { return a.Stored(t, q) == dumped })
	again := subscribe(t, b, q, 8)
	for range 100 {
		ackNext(t, again)
	}
}

// noPrefetch shows that a subscription with lanes is divided. It holds no message of another lane
// after SetPrefetch(0), although it does not run out of its prefetch.
func noPrefetch(t *testing.T, a Adapter) {
	b := a.open(t)
	q := fair(t, b)
	s := subscribe(t, b, q, 1)
	if d, ok := capability.As[broker.Divider](s); !ok || !d.Divided() {
		t.Fatal("the subscription is not divided")
	}
	publish(t, b, q, keyed("long", "heavy"))
	running := receive(t, s)
	ctx := testwait.Long(t)
	if _, err := broker.SetPrefetch(ctx, s, 0); err != nil {
		t.Fatalf("SetPrefetch(0): %v", err)
	}
	dump(t, b, q, "heavy", 30)
	other := subscribe(t, a.open(t), q, 8)
	for range 30 {
		ackNext(t, other)
	}
	if err := other.Close(ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if ids := held(t, s); len(ids) > 0 {
		t.Errorf("the stopped subscription holds %v", ids)
	}
	if err := running.Ack(context.WithoutCancel(ctx)); err != nil {
		t.Errorf("Ack: %v", err)
	}
	dump(t, b, q, "next", 4)
	if _, err := broker.SetPrefetch(ctx, s, 1); err != nil {
		t.Fatalf("SetPrefetch(1): %v", err)
	}
	for range 4 {
		ackNext(t, s)
	}
}
