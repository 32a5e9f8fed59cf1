package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestOldVersionEndsANewLife shows that the next consumer continues from the failure that a
// consumer of an older version recorded for a requeued task. That version records no life, and was
// cut off before its acknowledgement.
func TestOldVersionEndsANewLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTable(t, nil)
		var runs atomic.Int64
		def := task.New[int, int]("bad")
		if err := def.Handle(b.c, func(context.Context, int) (int, error) { runs.Add(1); return 0, task.Fail(errors.New("broken")) }); err != nil {
			t.Fatal(err)
		}
		first, err := serializer.JSONFormat{}.Encode(&task.Envelope{ID: "x", Name: "bad", ContentType: serializer.ContentJSON, Args: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		old := b.server.Connect()
		next := wire.NewLife(first, "requeued")
		if err := errors.Join(old.Declare(t.Context(), broker.Queue{Name: "default"}), old.Publish(t.Context(), "default", next)); err != nil {
			t.Fatal(err)
		}
		sub, err := old.Subscribe(t.Context(), "default", broker.SubscribeOptions{Prefetch: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		if err := b.store.Save(t.Context(), resultstore.Record{
			ID: "x", Name: "bad", State: task.StateFailed, Generation: next.Generation, Deliveries: 1, Error: &task.RemoteError{Message: "broken"},
			StartedAt: at, FinishedAt: at,
		}); err != nil {
			t.Fatal(err)
		}
		b.server.Disconnect(old)
		b.run()
		time.Sleep(time.Hour)
		if s := b.stats(t); runs.Load() != 0 || s.Dead != 1 || s.Ready+s.Held != 0 {
			t.Errorf("an hour later: %d runs after the recorded one, %+v", runs.Load(), s)
		}
		_ = sub.Close(t.Context())
		b.end()
	})
}
