package revoke_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestRemove: what nothing follows is removed and its end recorded; all else is left to a consumer, soon.
func TestRemove(t *testing.T) {
	ctx := t.Context()
	b := membroker.New()
	results := memresults.New(memresults.Config{})
	bus := memevents.New(memevents.Config{Retain: revoke.Retention()})
	told := memevents.New(memevents.Config{})
	defer func() {
		ctx := context.Background()
		if err := errors.Join(b.Close(ctx), results.Close(ctx), bus.Close(ctx), told.Close(ctx)); err != nil {
			t.Error(err)
		}
	}()
	heard, err := told.Subscribe(ctx, events.Filter{Types: []string{events.TaskRevoked}})
	if err != nil {
		t.Fatal(err)
	}
	codec, err := wire.New(wire.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Declare(ctx, b, broker.Queue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	ids := []task.ID{"plain", "followed", "sealed", "elsewhere", "grouped", "nowhere", "plain"}
	for _, e := range []*task.Envelope{
		{ID: "plain", Name: "a", Correlation: "c"},
		{ID: "followed", Name: "a", Then: []task.Link{{Name: "b"}}},
		{ID: "sealed", Name: "a", ContentType: "application/msgpack+sealed", Args: []byte("?")},
		{ID: "elsewhere", Name: "a", Meta: task.Metadata{ResultStore: task.Set("other")}},
		{ID: "grouped", Name: "a", Group: "g"},
	} {
		m, err := codec.Encode("q", e)
		if err != nil {
			t.Fatal(err)
		}
		if err := broker.PublishAt(ctx, b, broker.Outgoing{Queue: "q", Message: m, At: later}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := revoke.NewRevoker(revoke.RevokerConfig{
		Events: bus, Broker: b, Queues: []string{"none", "q"}, Results: results, Tasks: told, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Revoke(ctx, revoke.Options{}, ids...)
	want := slices.Repeat([]revoke.Outcome{revoke.Noted}, len(ids))
	want[0] = revoke.Removed
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("outcomes are %v, %v; want %v", got, err, want)
	}
	rec, err := results.Load(ctx, "plain")
	if err != nil || rec.State != task.StateRevoked || !errors.Is(rec.Error, task.ErrRevoked) || rec.Correlation != "c" {
		t.Fatalf("the record is %+v, %v", rec, err)
	}
	if e, err := heard.Receive(ctx); err != nil || e.TaskID != "plain" {
		t.Fatalf("heard %+v, %v", e, err)
	}
	if _, err := b.Find(ctx, "q", "plain"); !errors.Is(err, broker.ErrNotFound) {
		t.Fatalf("the message is still there: %v", err)
	}
	for _, id := range ids[1:5] {
		out, err := b.Find(ctx, "q", string(id))
		if err != nil || !out.At.Before(later.Add(-30*time.Minute)) {
			t.Errorf("%s is due %v, %v; want it soon", id, out.At, err)
		}
	}
	// Its time counts: the revocation of what was delayed outlives that time.
	l := newList(t, revoke.Config{Events: bus})
	ready(t, l)
	check(t, l, "grouped", true)
}
