package amqpevents_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/swarmiji/swarmiji/connect/amqpconnect"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/amqpevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

func keep(c *amqpevents.Config) { c.Retain = events.Retention{Age: time.Hour} }

func replay(t testing.TB, b *amqpevents.Bus) events.Subscription {
	t.Helper()
	s, err := b.Replay(testwait.Long(t), events.Filter{}, time.Time{})
	if err != nil {
		t.Fatalf("Replay: %v", err)
	}
	return s
}

// logQueue returns the documented name of the stream queue of a namespace.
func logQueue(ns string) string { return "swj." + ns + ".ev.log" }

// While one connection declares a stream, the server shows it to others but closes connections that
// use it. Neither the first kept events nor live ones are lost then.
func TestFirstEventsWhileTheStreamIsMade(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	for range 25 {
		ns := testserver.Namespace()
		publisher, listener := open(t, srv.URL(), ns, keep), open(t, srv.URL(), ns, keep)
		live := subscribe(t, listener, events.Filter{})
		const n = 250
		for i := range n {
			publish(t, publisher, i)
		}
		kept := replay(t, listener)
		for i := range n {
			for what, s := range map[string]events.Subscription{"kept": kept, "live": live} {
				if e := receive(t, s); e.TaskID != started(i).TaskID {
					t.Fatalf("%s event %d is of %s; %d were not kept", what, i, e.TaskID, publisher.Unkept())
				}
			}
		}
		for _, b := range []*amqpevents.Bus{publisher, listener} {
			if err := b.Close(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A queue with another retention does not stop a node, and each process logs one warning.
func TestQueueWithAnotherRetention(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	first := open(t, srv.URL(), ns, keep)
	publish(t, first, 1)
	receive(t, replay(t, first))

	var told buffer
	other := open(t, srv.URL(), ns, func(c *amqpevents.Config) {
		c.Retain = events.Retention{Age: time.Minute, Max: 10}
		c.Logger = slog.New(slog.NewTextHandler(&told, nil))
	})
	publish(t, other, 2)
	s := replay(t, other)
	for i := 1; i <= 2; i++ {
		if e := receive(t, s); e.TaskID != started(i).TaskID {
			t.Errorf("event %d is of %s", i, e.TaskID)
		}
	}
	if n := strings.Count(told.String(), logQueue(ns)+" "); n != 1 || !strings.Contains(told.String(), "another retention") {
		t.Errorf("the logger was told %d times:\n%s", n, told.String())
	}
}

// buffer is a bytes.Buffer that is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// After the queue was deleted, the next event makes it again and an open stream continues with it.
// The stream does not wait for the offset of the old queue, and delivers no event twice.
func TestQueueDeletedUnderAStream(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	listener, publisher := open(t, srv.URL(), ns, keep), open(t, srv.URL(), ns, keep)
	listener.SetPositionWait(500 * time.Millisecond)
	s := replay(t, listener)
	const before = 500
	for i := range before {
		publish(t, publisher, i)
	}
	for i := range before {
		if e := receive(t, s); e.TaskID != started(i).TaskID {
			t.Fatalf("event %d is of %s", i, e.TaskID)
		}
	}
	if _, err := channel(t, srv.URL()).QueueDelete(logQueue(ns), false, false, false); err != nil {
		t.Fatal(err)
	}
	for kept, next := 0, before; kept < 5; next++ {
		if keptOne(t, publisher, s, next) {
			kept++
		} else if kept > 0 || next > before+20 {
			t.Fatalf("event %d was not kept, after %d that were", next, kept)
		}
	}
	nothing(t, s)
}

// keptOne publishes an event and waits until s receives it (true) or it is counted as unkept
// (false). While RabbitMQ declares a stream queue again, it closes the connections of its
// publishers.
func keptOne(t testing.TB, b *amqpevents.Bus, s events.Subscription, n int) bool {
	t.Helper()
	lost, end := b.Unkept(), time.Now().Add(30*time.Second)
	publish(t, b, n)
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		e, err := s.Receive(ctx)
		cancel()
		switch {
		case err == nil && e.TaskID != started(n).TaskID:
			t.Fatalf("received the event of %s, want that of %s", e.TaskID, started(n).TaskID)
		case err == nil:
			return true
		case b.Unkept() > lost:
			return false
		}
	}
	t.Fatalf("event %d neither came nor was counted", n)
	return false
}

// nothing expects that no event arrives for a second.
func nothing(t testing.TB, s events.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if e, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("received an event of %s (%v), want none", e.TaskID, err)
	}
}

// Foreign messages in the stream queue are counted and skipped. A message without a time of sending
// counts as new.
func TestStrangeMessagesInTheLog(t *testing.T) {
	srv := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	b := open(t, srv.URL(), ns, keep)
	s := replay(t, b)
	ch := channel(t, srv.URL())
	for _, body := range []string{"", "nonsense", `{"type":"mine","n":1}`} {
		if err := ch.PublishWithContext(t.Context(), "", logQueue(ns), false, false, amqp.Publishing{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	if e := receive(t, s); e.Type != "mine" || e.Fields["n"] != 1.0 {
		t.Errorf("received %+v, want the single map", e)
	}
	if got := s.(events.DropCounter).Dropped(); got != 2 {
		t.Errorf("Dropped = %d, want 2", got)
	}
}

// Without a server unkept events are counted separately from dropped ones.
func TestUnkept(t *testing.T) {
	b := open(t, "amqp://nobody:hunter2@127.0.0.1:1/", "none", func(c *amqpevents.Config) {
		c.Retain = events.Retention{Age: time.Hour, Types: []string{events.TaskFailed}}
		c.Batch = events.BatcherConfig{SendTimeout: 100 * time.Millisecond}
	})
	const n = 50
	for i := range n {
		publish(t, b, i)
		if err := b.Publish(t.Context(), events.Event{Type: events.TaskFailed, TaskID: task.ID("t")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
	if b.Dropped() != 2*n || b.Unkept() != n {
		t.Errorf("Dropped = %d, Unkept = %d, want %d and %d", b.Dropped(), b.Unkept(), 2*n, n)
	}
	if open(t, "amqp://127.0.0.1:1/", "none").Unkept() != 0 {
		t.Error("a bus that keeps nothing counts what it does not keep")
	}
}

func TestRetentionIsChecked(t *testing.T) {
	_, err := amqpevents.New(amqpevents.Config{Connect: amqpconnect.Config{URLs: []string{"amqp://h/"}}, Retain: events.Retention{Age: -1, Max: -1}})
	if err == nil || !strings.Contains(err.Error(), "age") || !strings.Contains(err.Error(), "-1 events") {
		t.Errorf("New with a negative retention: %v", err)
	}
}
