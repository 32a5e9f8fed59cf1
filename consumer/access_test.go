package consumer_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/task"
)

// TestUnreadableNoAccess shows that an unreadable message does not block other messages if this
// user may not write dead letters.
func TestUnreadableNoAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = noAccess(c.Broker)
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 1, Prefetch: 1}}
		})
		conn := b.server.Connect()
		_ = conn.Declare(t.Context(), broker.Queue{Name: "default"})
		_ = conn.Publish(t.Context(), "default", &broker.Message{ID: "junk", ContentType: "application/x-junk", Body: []byte("?")})
		f := b.submit(5)
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got, err := f.Get(ctx); err != nil {
			t.Errorf("%v %v, %+v", got, err, b.stats(t))
		}
		b.end()
	})
}

// TestNoNotesDoesNotBlockOthers shows that tasks that cannot be acknowledged early, because a
// permission is missing, do not block other tasks.
func TestNoNotesDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, func(c *consumer.Config) {
			c.Broker = noNotes(c.Broker)
			c.Queues = map[string]consumer.QueueConfig{"default": {Workers: 2, Prefetch: 2}}
		})
		b.submit(1, task.WithIdempotent(false))
		b.submit(2, task.WithIdempotent(false))
		f := b.submit(5)
		b.run()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if got, err := f.Get(ctx); err != nil {
			t.Errorf("a plain task behind two that run at most once, a day later: %v %v, %+v", got, err, b.stats(t))
		}
		b.end()
	})
}

// TestImportOld shows that dead letters that are imported 31 days after their export are kept.
func TestImportOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := membroker.NewServer(membroker.Config{}).Connect()
		_ = conn.Declare(t.Context(), broker.Queue{Name: "q"})
		l, err := deadletter.New(deadletter.Config{Broker: conn})
		must0(t, err)
		must0(t, conn.PutDead(t.Context(), "q", broker.Dead{Message: &broker.Message{ID: "a", Body: []byte("x")}, Reason: "r"}))
		var file bytes.Buffer
		n, err := l.Export(t.Context(), "q", deadletter.Filter{}, &file)
		must0(t, err)
		_, err = l.Drop(t.Context(), "q", deadletter.Filter{})
		must0(t, err)
		time.Sleep(31 * 24 * time.Hour)
		m, err := l.Import(t.Context(), "", strings.NewReader(file.String()))
		must0(t, err)
		s, _ := conn.Stats(t.Context(), "q")
		if s.Dead != n {
			t.Errorf("%d exported, %d imported as Import says; there are %+v", n, m, s)
		}
		_ = conn.Close(t.Context())
	})
}
