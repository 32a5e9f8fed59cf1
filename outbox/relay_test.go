package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
)

// TestFailureStopsItsKey shows that a message that fails is tried again and stops only its key.
func TestFailureStopsItsKey(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	for _, class := range []error{broker.ErrNoQueue, broker.ErrIndeterminate, broker.ErrBlocked, broker.ErrAccess, errTest} {
		b := newScripted(t, map[string]error{"a1": class, "free1": class})
		l.submit("a", "a0", "a1", "a2", "a3")
		l.submit("b", "b0", "b1")
		l.submit("", "free0", "free1", "free2")
		stop := l.run(b)
		l.until("only the failed messages and what they stop wait", func(s outbox.Stats) bool {
			return s.Waiting == 4 && s.Failing == 2 && strings.Contains(s.Reason, class.Error())
		})
		l.submit("a", "a4")
		l.submit("c", "c0")
		l.until("other keys go on", func(s outbox.Stats) bool { return s.Waiting == 5 })
		b.set(nil)
		l.untilEmpty()
		stop()
		var a, rest []string
		for _, id := range b.sent() {
			if id[0] == 'a' {
				a = append(a, id)
			} else {
				rest = append(rest, id)
			}
		}
		slices.Sort(rest)
		if diff := cmp.Diff([]string{"a0", "a1", "a2", "a3", "a4"}, a); diff != "" {
			t.Errorf("%v: the messages of the key were sent in this order:\n%s", class, diff)
		}
		if diff := cmp.Diff([]string{"b0", "b1", "c0", "free0", "free1", "free2"}, rest); diff != "" {
			t.Errorf("%v: the other messages:\n%s", class, diff)
		}
	}
}

// TestFailureIsLogged shows that the first failure is logged also if it stops all other messages of
// the page.
func TestFailureIsLogged(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, map[string]error{"a0": broker.ErrNoQueue})
	l.submit("a", "a0", "a1")
	tries := make(chan int, 1)
	h := slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if strings.Contains(string(p), "messages could not be sent") {
			select {
			case tries <- b.asked["a0"]:
			default:
			}
		}
		return len(p), nil
	}), nil)
	l.run(b, func(c *outbox.Config) { c.Logger = slog.New(h) })
	select {
	case n := <-tries:
		if n != 1 {
			t.Errorf("the failure is logged after %d attempts", n)
		}
	case <-testwait.Long(t).Done():
		t.Error("the failure is not logged")
	}
}

// writerFunc is an [io.Writer].
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestManyFailures shows that many failed messages, more than a page holds, do not stop the others.
func TestManyFailures(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	refuse := make(map[string]error)
	var bad, good []string
	for i := range 700 {
		id := "bad" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		bad, refuse[id] = append(bad, id), broker.ErrNoQueue
	}
	for i := range 20 {
		good = append(good, "good"+string(rune('a'+i)))
	}
	b := newScripted(t, refuse)
	l.submit("stuck", bad[:300]...)
	l.submit("", bad[300:]...)
	l.submit("", good...)
	l.run(b)
	testwait.Until(t, "the good messages are sent", func() bool { return len(b.sent()) == len(good) })
	b.set(nil)
	l.untilEmpty()
	if n := len(b.sent()); n != len(bad)+len(good) {
		t.Errorf("%d messages were sent, want %d", n, len(bad)+len(good))
	}
}

// TestQueueAway shows that messages for a queue that cannot be reached do not stop those for
// others, however many they are. RabbitMQ says so of a classic queue whose node is down.
func TestQueueAway(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, nil)
	b.away = "node-down"
	var bad []broker.Outgoing
	for i := range 600 {
		bad = append(bad, broker.Outgoing{Queue: "node-down", Message: &broker.Message{ID: fmt.Sprint("bad", i)}})
	}
	l.publish(bad...)
	l.submit("", "good0", "good1")
	l.run(b)
	testwait.Until(t, "the good messages are sent", func() bool { return len(b.sent()) == 2 })
	l.submit("", "good2")
	testwait.Until(t, "the next one is sent", func() bool { return len(b.sent()) == 3 })
	b.mu.Lock()
	b.away = ""
	b.mu.Unlock()
	l.untilEmpty()
	if n := len(b.sent()); n != 603 {
		t.Errorf("%d messages were sent, want 603", n)
	}
}

// TestSilentQueue shows that a queue that confirms nothing does not hold the messages for others up
// again and again, although it gets new messages.
func TestSilentQueue(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, nil)
	b.silent = "deaf"
	stop := l.run(b, func(c *outbox.Config) { c.Lease = 3 * time.Second })
	defer stop()
	const pairs = 10
	for i := range pairs {
		l.publish(broker.Outgoing{Queue: "deaf", Message: &broker.Message{ID: fmt.Sprint("deaf", i)}})
		l.submit("", fmt.Sprint("good", i))
		testwait.Until(t, "the other message is sent", func() bool { return len(b.sent()) == i+1 })
	}
	b.mu.Lock()
	asked := len(b.asked) - pairs
	b.silent = ""
	b.mu.Unlock()
	if asked > pairs/2 { // two seconds each
		t.Errorf("%d of %d messages were sent to the silent queue, want few", asked, pairs)
	}
	_, err := l.db.ExecContext(testwait.Long(t), "UPDATE swarmiji_outbox SET retry = 1 WHERE failures > 0")
	must(t, err)
	l.untilEmpty()
	if n := len(b.sent()); n != 2*pairs {
		t.Errorf("%d messages were sent, want %d", n, 2*pairs)
	}
}

// counted is a Store that counts its pages.
type counted struct {
	outbox.Store
	pages atomic.Int64
}

func (c *counted) Read(ctx context.Context, buckets []int, many bool) ([]outbox.Row, error) {
	rows, err := c.Store.Read(ctx, buckets, many)
	if len(rows) > 0 {
		c.pages.Add(1)
	}
	return rows, err
}

// TestDrain shows that messages that failed during an outage are soon sent after it. With few of
// them in each page it took ten times as long as for new messages.
func TestDrain(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	var ids []string
	for i := range 2000 {
		ids = append(ids, fmt.Sprint("m", i))
	}
	l.submit("", ids...)
	_, err := l.db.ExecContext(testwait.Long(t), "UPDATE swarmiji_outbox SET failures = 9, retry = 1 + seq")
	must(t, err)
	b, c := newScripted(t, nil), &counted{Store: l.store}
	l.run(b, func(cfg *outbox.Config) { cfg.Store = c })
	l.untilEmpty()
	if n := c.pages.Load(); n > 12 || len(b.sent()) != len(ids) {
		t.Errorf("%d messages were sent in %d pages, want %d in about 9", len(b.sent()), n, len(ids))
	}
}

// TestDead shows that a message that can never be sent leaves the way, and can come back.
func TestDead(t *testing.T) {
	t.Parallel()
	l, ctx := newFile(t), testwait.Long(t)
	b := newScripted(t, map[string]error{"a0": broker.ErrTooLarge, "x": broker.ErrMalformed, "y": broker.ErrUnsupported})
	l.submit("a", "a0", "a1")
	l.submit("", "x", "y")
	l.run(b)
	l.until("three messages are dead", func(s outbox.Stats) bool { return s.Dead == 3 && s.Waiting == 0 })
	dead, err := l.store.Dead(ctx, 10)
	must(t, err)
	if len(dead) != 3 || dead[0].ID != "a0" || dead[0].Queue != "work" || dead[0].OrderKey != "a" || dead[0].Size != 1 || dead[0].At.IsZero() ||
		!strings.Contains(dead[0].Reason, broker.ErrTooLarge.Error()) {
		t.Errorf("the dead messages are %+v", dead)
	}
	b.set(nil)
	if n, err := l.store.Requeue(ctx, "a0", "none"); n != 1 || err != nil {
		t.Errorf("Requeue: %d, %v; want 1", n, err)
	}
	if n, err := l.store.Drop(ctx, "x", "none"); n != 1 || err != nil {
		t.Errorf("Drop: %d, %v; want 1", n, err)
	}
	l.until("one is dead", func(s outbox.Stats) bool { return s.Dead == 1 && s.Waiting == 0 })
	if diff := cmp.Diff([]string{"a1", "a0"}, b.sent()); diff != "" {
		t.Errorf("sent:\n%s", diff)
	}
}

// forgetful is a Store whose database is away for a number of settlements.
type forgetful struct {
	outbox.Store
	away atomic.Int64
}

func (f *forgetful) Settle(ctx context.Context, s outbox.Settlement) error {
	if f.away.Add(-1) >= 0 {
		return errTest
	}
	return f.Store.Settle(ctx, s)
}

// TestDatabaseAway shows that a message that was confirmed is not published again while its
// deletion is not possible.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, nil)
	f := &forgetful{Store: l.store}
	f.away.Store(4)
	l.submit("a", "a0", "a1")
	l.submit("", "x")
	l.run(b, func(c *outbox.Config) { c.Store = f })
	l.untilEmpty()
	if again := b.repeated(); len(again) > 0 || len(b.sent()) != 3 {
		t.Errorf("sent %v, again %v", b.sent(), again)
	}
}

// TestStop shows that a relay waits at its stop for the publish in progress. It then leaves its
// messages to others at once, without repeats.
func TestStop(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, nil)
	b.hold = make(chan struct{})
	l.submit("a", "a0", "a1")
	stop := l.run(b, func(c *outbox.Config) { c.Lease = time.Hour })
	<-b.held
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
		t.Error("the relay has stopped during a publish")
	case <-time.After(50 * time.Millisecond):
	}
	close(b.hold)
	testwait.Closed(t, "the relay stops", stopped)
	b.mu.Lock()
	b.hold = nil
	b.mu.Unlock()
	if diff := cmp.Diff([]string{"a0"}, b.sent()); diff != "" {
		t.Errorf("sent after the stop:\n%s", diff)
	}
	l.run(b, func(c *outbox.Config) { c.Lease = time.Hour })
	l.untilEmpty()
	if diff := cmp.Diff([]string{"a0", "a1"}, b.sent()); diff != "" {
		t.Errorf("sent by the second relay:\n%s", diff)
	}
}

// TestClosed shows that a relay ends with its broker.
func TestClosed(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, map[string]error{"x": broker.ErrClosed})
	r, err := outbox.New(outbox.Config{Store: l.store, Broker: b, Logger: quiet})
	must(t, err)
	l.submit("", "x")
	if err := r.Run(testwait.Long(t)); err == nil || !strings.Contains(err.Error(), broker.ErrClosed.Error()) {
		t.Errorf("Run returns %v, want ErrClosed", err)
	}
	l.until("the message waits, and no relay is left", func(s outbox.Stats) bool { return s.Waiting == 1 && s.Failing == 0 && s.Relays == 0 })
}

// watched is a Store that notes the share of its relay.
type watched struct {
	outbox.Store
	buckets atomic.Int64
}

func (w *watched) Lease(ctx context.Context, relay string, lease time.Duration) (outbox.Share, error) {
	share, err := w.Store.Lease(ctx, relay, lease)
	w.buckets.Store(int64(len(share.Buckets)))
	return share, err
}

// TestNewRelay shows that a new relay gets its share while the others are busy. The order of a key
// holds, and each message is published once.
func TestNewRelay(t *testing.T) {
	t.Parallel()
	l := newFile(t)
	b := newScripted(t, nil)
	relays := make([]*watched, 3)
	var want []string
	number := func(w *watched) int64 {
		if w == nil {
			return 0
		}
		return w.buckets.Load()
	}
	for i := range relays {
		relays[i] = &watched{Store: l.store}
		l.run(b, func(c *outbox.Config) { c.Store = relays[i] })
		n := 0
		testwait.Until(t, "each relay has its share", func() bool {
			n++
			id := fmt.Sprintf("%d-%05d", i, n)
			want = append(want, id)
			l.submit("key", id)
			for _, w := range relays[:i+1] {
				if got := number(w); got != int64(outbox.Buckets/(i+1)) && got != int64(outbox.Buckets/(i+1)+1) {
					return false
				}
			}
			return true
		})
	}
	l.untilEmpty()
	if diff := cmp.Diff(want, b.sent()); diff != "" {
		t.Errorf("sent:\n%s", diff)
	}
	if again := b.repeated(); len(again) > 0 {
		t.Errorf("published again: %v", again)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{Lease: time.Millisecond})
	for _, want := range []string{"Store", "Broker", "Lease"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
