package sqlbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/sqlbroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// shared returns the URLs of databases that several processes can use.
func shared(t *testing.T) map[string]string {
	all := urls(t)
	delete(all, "memory")
	return all
}

// TestIdleQueues shows that the queues of a process that wait share their reads, and that a poll
// finds a message without a notification.
func TestIdleQueues(t *testing.T) {
	t.Parallel()
	const queues = 60
	for name, url := range shared(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testwait.Long(t)
			db, n := sqltest.Counting(t, url)
			cfg := sqlbroker.Config{DB: db, Namespace: testserver.Namespace(), Poll: 300 * time.Millisecond}
			b := open(t, cfg)
			subs := make([]broker.Subscription, queues)
			for i := range subs {
				queue := fmt.Sprint("q", i)
				subs[i] = subscribed(ctx, t, b, queue, 1)
				if err := b.Publish(ctx, queue, &broker.Message{ID: "a"}); err != nil {
					t.Fatal(err)
				}
				if err := broker.AckSync(ctx, received(ctx, t, subs[i])); err != nil {
					t.Fatal(err)
				}
			}
			passed := func(d time.Duration) {
				begun := time.Now()
				testwait.Until(t, "some time passes", func() bool { return time.Since(begun) > d })
			}
			passed(2 * cfg.Poll)
			before, begun := n.Load(), time.Now()
			testwait.Until(t, "some polls have been made", func() bool { return n.Load() > before && time.Since(begun) > 4*cfg.Poll })
			made, polls := n.Load()-before, int64(time.Since(begun)/cfg.Poll)+1
			if made > polls*queues/4 {
				t.Errorf("%d transactions in %d polls of %d queues: the queues must share them", made, polls, queues)
			}
			t.Logf("%d transactions in %d polls of %d queues", made, polls, queues)

			// It commits after the last notification.
			own := sqltest.Begin(t, url)
			if err := b.PublishTx(ctx, own.Tx, []broker.Outgoing{{Queue: "q7", Message: &broker.Message{ID: "late"}}}); err != nil {
				t.Fatal(err)
			}
			passed(time.Second)
			if err := own.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := broker.AckSync(ctx, received(ctx, t, subs[7])); err != nil {
				t.Error(err)
			}
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPeek shows the answers of a read about a queue without a message, and about messages that are
// delayed, held or can be claimed.
func TestPeek(t *testing.T) {
	t.Parallel()
	for name, url := range shared(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testwait.Long(t)
			b := open(t, config(t, url, testserver.Namespace()))
			if err := b.Declare(ctx, broker.Queue{Name: "other"}, broker.Queue{Name: "q", Levels: []int{1, 2, 3}}); err != nil {
				t.Fatal(err)
			}
			now := func(queue string, want bool, least, most time.Duration) {
				t.Helper()
				ready, wake, err := sqlbroker.Peek(ctx, b, queue)
				if err != nil || ready != want || wake < least || wake > most {
					t.Errorf("%s: ready is %v, want %v; wake is %v, want %v to %v; error %v", queue, ready, want, wake, least, most, err)
				}
			}
			publish := func(id string, priority int, delay time.Duration) {
				t.Helper()
				m := &broker.Message{ID: id, Priority: priority}
				if err := b.PublishAt(ctx, "q", m, time.Now().Add(delay)); err != nil {
					t.Fatal(err)
				}
			}
			now("q", false, 0, 0)
			publish("late", 1, 3*time.Hour)
			publish("later", 3, 4*time.Hour)
			now("q", false, 2*time.Hour, 3*time.Hour+time.Second)
			publish("now", 2, 0)
			now("q", true, 1, time.Second)
			now("other", false, 0, 0)
			s := subscribed(ctx, t, b, "q", 1)
			d := received(ctx, t, s)
			if name == "sqlite" { // its index has the end of the lease
				now("q", false, 1, sqlbroker.DefaultLease)
			} else {
				now("q", false, 2*time.Hour, 3*time.Hour+time.Second)
			}
			if err := broker.AckSync(ctx, d); err != nil {
				t.Fatal(err)
			}
			now("q", false, 2*time.Hour, 3*time.Hour+time.Second)
			if err := b.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
